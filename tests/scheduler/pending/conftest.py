"""Assertions of the steps are explained when they fail."""

import pytest

pytest.register_assert_rewrite("tests.scheduler.pending.scene", "tests.scheduler.pending.groups.story")
