"""Find items with a number and a sum within bounds: which VFs go to the first of two PFs (`two_bins`), by several ways.

No I/O, and no PFs or VFs: only numbers. Uses the bins, items and steps of `scheduler.placement.fill`.
"""
