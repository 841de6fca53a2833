"""How often Python code calls functions: a measure of work that no machine's load changes."""

import sys
from collections.abc import Callable
from types import FrameType, FunctionType


def count_calls(function: Callable[..., object], action: Callable[[], object]) -> int:
    """Return how often an action calls a function that is written in Python."""
    assert isinstance(function, FunctionType)
    code = function.__code__
    return _count(action, lambda frame, event: event == "call" and frame.f_code is code)


def count_all_calls(action: Callable[[], object]) -> int:
    """Return how often an action calls functions, of Python code and built-in ones."""
    return _count(action, lambda _, event: event in ("call", "c_call"))


def _count(action: Callable[[], object], counts: Callable[[FrameType, str], bool]) -> int:
    count, profile = 0, sys.getprofile()

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += counts(frame, event)

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(profile)
    return count
