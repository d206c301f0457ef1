"""The rehearsal: one training job against one throttled store, with stock s3fs and then with this library.

command   the arguments of `resilient-io rehearse`, and its exit status
job       what the job reads and writes, and how long it must take at the ceiling
store     the embedded store, or a prefix of a real bucket
fleet     the processes of a run, seen from the parent;  crew: seen from the inside
worker    the job in one process
outcomes  what became of the operations, and the figures of a run
rehearsal the runs, one after the other
progress, table  what is shown
"""
