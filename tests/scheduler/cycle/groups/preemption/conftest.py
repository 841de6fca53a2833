"""A machine for groups without the verbs of stories."""

from tests.scheduler.group_life import life as life
