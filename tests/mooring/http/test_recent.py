"""Answers that callers share: made once, however many ask."""

import asyncio

import pytest

from mooring.http.recent import Recent, RecentAnswer


class Made:
    """Counts how often an answer is made, on a clock that the test sets."""

    def __init__(self) -> None:
        self.count = 0
        self.now_s = 100.0
        self.go = asyncio.Event()

    def clock(self) -> float:
        return self.now_s

    def body(self) -> bytes:
        self.count += 1
        return str(self.count).encode()

    async def answer(self) -> bytes:
        self.count += 1
        await self.go.wait()
        return str(self.count).encode()

    async def failure(self) -> bytes:
        self.count += 1
        raise OSError(str(self.count))


async def test_a_body_is_made_once_for_all_who_ask_within_its_time() -> None:
    """And again when that has passed."""
    made = Made()
    recent = Recent(made.body, 1.0, made.clock)
    assert [recent.get() for _ in range(3)] == [b"1"] * 3
    made.now_s += 1.0
    assert recent.get() == b"2"


async def test_callers_at_once_wait_for_the_same_answer() -> None:
    """One who leaves does not end it for the others; its time counts from its end on."""
    made = Made()
    recent = RecentAnswer(made.answer, 1.0, made.clock)
    callers = [asyncio.create_task(recent.get()) for _ in range(5)]
    await asyncio.sleep(0)
    callers[0].cancel()
    made.now_s += 5.0
    later = asyncio.create_task(recent.get())
    await asyncio.sleep(0)
    made.go.set()
    assert await asyncio.gather(*callers[1:], later) == [b"1"] * 5
    made.now_s += 0.9
    assert await recent.get() == b"1"
    made.now_s += 0.1
    assert await recent.get() == b"2"


async def test_a_failure_is_shared_too() -> None:
    """Asking for what fails costs no more than asking for what does not."""
    made = Made()
    recent = RecentAnswer(made.failure, 1.0, made.clock)
    for _ in range(3):
        with pytest.raises(OSError, match="1"):
            await recent.get()
    made.now_s += 1.0
    with pytest.raises(OSError, match="2"):
        await recent.get()
