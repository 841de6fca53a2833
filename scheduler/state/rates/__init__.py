"""Rates of running pods that their users change."""
