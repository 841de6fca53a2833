"""How often Python code calls one of its functions: a measure of work that no machine's load changes."""

import sys
from collections.abc import Callable
from types import FrameType, FunctionType


def count_calls(function: Callable[..., object], action: Callable[[], object]) -> int:
    """Return how often an action calls a function that is written in Python."""
    assert isinstance(function, FunctionType)
    code, count, profile = function.__code__, 0, sys.getprofile()

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is code

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(profile)
    return count
