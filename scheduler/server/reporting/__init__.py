"""What people read beside a bind: conditions, Events and log lines, and the writer that sends them.

A report never delays a bind. The packages below decide whether there is something to report.
"""
