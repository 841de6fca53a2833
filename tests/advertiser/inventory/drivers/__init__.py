"""Which drivers a kernel has for PFs, as recorded from two source trees (``linux-*.txt``)."""
