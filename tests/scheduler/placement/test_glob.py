"""Patterns for PF names mean what they mean to the standard library's fnmatch."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler.placement.glob import Glob

_PATTERNS = st.text("ab-![]*?^\\&", max_size=10)


@given(_PATTERNS, st.text("ab-![]^\\&", max_size=6))
@example("[!]a]", "b")
@example("[]-a]", "^")
@example("[b-a]", "a")
@example("[!b-a]", "a")
@example("[a-b-]", "-")
@example("[--a]", "A")
def test_a_pattern_matches_what_the_standard_library_matches(pattern: str, name: str) -> None:
    """Sets, ranges that are empty, brackets that are never closed, and a hyphen at either end."""
    assert Glob(pattern).matches(name) == bool(fnmatchcase(name, pattern))


@pytest.mark.parametrize(
    ("pattern", "matches"), [("enp*s0f[01]", True), ("enp?s0f0np*", False), ("*", True), ("", False)]
)
def test_patterns_match_names_of_interfaces(pattern: str, matches: bool) -> None:
    """As users write them."""
    assert Glob(pattern).matches("enp4s0f1") == matches
