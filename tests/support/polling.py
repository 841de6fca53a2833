"""Wait for a condition: check again and again, and give up only where a test hangs."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

# A machine under load may take many times as long as a quiet one; no test passes or fails by this.
LIMIT_S = 90.0
PAUSE_S = 0.02

T = TypeVar("T")


def reaches(reached: Callable[[], object], limit_s: float = LIMIT_S, pause_s: float = PAUSE_S) -> bool:
    """Return whether ``reached`` answers truly within ``limit_s`` seconds: for what comes soon or never."""
    deadline = time.monotonic() + limit_s
    while not reached():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause_s)
    return True


def wait_until(
    reached: Callable[[], object], what: str = "the condition", limit_s: float = LIMIT_S, pause_s: float = PAUSE_S
) -> None:
    """Return once ``reached`` answers truly; fail with ``what`` after ``limit_s`` seconds."""
    assert reaches(reached, limit_s, pause_s), f"not reached within {limit_s} s: {what}"


async def until(reached: Callable[[], object], what: str = "the condition", limit_s: float = LIMIT_S) -> None:
    """Do as `wait_until` does, and let the event loop go on meanwhile."""
    deadline = time.monotonic() + limit_s
    while not reached():
        assert time.monotonic() < deadline, f"not reached within {limit_s} s: {what}"
        await asyncio.sleep(PAUSE_S)


async def eventually(found: Callable[[], Awaitable[T | None]], limit_s: float = LIMIT_S) -> T:
    """Return the first true answer; raise TimeoutError after ``limit_s`` seconds, within a question too."""
    async with asyncio.timeout(limit_s):
        while not (answer := await found()):
            await asyncio.sleep(PAUSE_S)
    return answer
