"""What people read beside a bind: conditions, Events and log lines, and the writer that sends them.

A report never delays a bind. Whether there is something to report is decided in the rooms below.
"""
