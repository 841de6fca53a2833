"""Reports for people: conditions, Events and log lines, and the writer that sends them.

A report never delays a Binding. The packages below decide whether there is something to report.
"""
