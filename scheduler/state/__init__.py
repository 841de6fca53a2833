"""The state machine: events of the watches and results of writes go in, a list of instructions comes out.

No I/O: time is an argument, failures are events. Uses every room below it (extender, pending, cycle, …); only server/
uses it.
"""
