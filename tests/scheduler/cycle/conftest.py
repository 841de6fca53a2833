"""A machine, and groups on it."""

from tests.scheduler.group_life import life

__all__ = ["life"]
