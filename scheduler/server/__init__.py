"""All I/O of the scheduler: watches, Bindings, evictions, leader election, metrics; and the loop that runs the machine.

Only this package and `scheduler.__main__` read clocks, files, sockets or random numbers. It uses every other package,
and none of them uses it.
"""
