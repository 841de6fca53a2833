"""The state machine: watch events and results of writes are the input, a list of instructions is the output.

No I/O: time is an argument, failures are events. Uses every package below it (extender, pending, cycle, …); only
server/ uses it.
"""
