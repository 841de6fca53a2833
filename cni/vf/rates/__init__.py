"""Rates of VFs: a PF is prepared for them, and changed ones of a running pod are put in force."""
