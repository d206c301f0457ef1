"""Who shares a limit: one process, or the processes of one machine.

A `Pace` steps the record of one level of a scope. Which kind a level gets is a matter of the policy's `coordination`
and of what works here; the gate does not know.
"""
