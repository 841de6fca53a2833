"""Rates of VFs: prepare a PF for them, and apply changed rates of running pods."""
