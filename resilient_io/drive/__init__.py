"""Time, waiting and locks: the only place where a decision of `control/` meets a clock or a thread."""
