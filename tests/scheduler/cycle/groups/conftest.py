"""A machine, and groups on it."""

from tests.scheduler.cycle.groups.scene import life as life
