"""The rehearsal: one training job against one throttled store, with stock s3fs or adlfs and then with this library.

command   the arguments of `resilient-io rehearse`, and its exit status
job       what the job reads and writes, and how long it must take at the ceiling
clouds    what differs between S3 and Azure
store     the embedded store, or a prefix of a real bucket;  s3_store, azure_store: those of each cloud
fleet     the processes of a run, seen from the parent;  crew: seen from the inside
worker    the job in one process;  counting: what its clients sent
outcomes  what became of the operations, and the figures of a run
rehearsal the runs, one after the other
progress, table  what is shown
"""
