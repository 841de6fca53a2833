"""Waiting for a condition ends with the condition, or with words."""

import asyncio
from itertools import count

import pytest

from tests.support.polling import eventually, until, wait_until


def test_waiting_ends_when_the_condition_holds() -> None:
    asked = count()
    wait_until(lambda: next(asked) == 2, pause_s=0)
    assert next(asked) == 3


def test_what_is_never_reached_is_named() -> None:
    with pytest.raises(AssertionError, match="not reached within 0 s: the pod runs"):
        wait_until(lambda: False, "the pod runs", limit_s=0)


async def test_the_event_loop_goes_on_meanwhile() -> None:
    done = asyncio.Event()
    asyncio.get_running_loop().call_soon(done.set)
    await until(done.is_set)
    with pytest.raises(AssertionError, match="never"):
        await until(lambda: False, "never", limit_s=0)


async def test_the_first_true_answer_is_returned() -> None:
    answers = iter((None, "", "found"))

    async def ask() -> str | None:
        return next(answers)

    assert await eventually(ask) == "found"


async def test_a_question_that_hangs_is_given_up() -> None:
    with pytest.raises(TimeoutError):
        await eventually(asyncio.Event().wait, limit_s=0)
