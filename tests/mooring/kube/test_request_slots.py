"""Places for writes: each namespace in turn, and one with slow writes costs the others nothing."""

import asyncio

import pytest

from mooring.kube import request_slots
from mooring.kube.request_slots import RequestSlots, Slot
from tests.support.polling import eventually


async def _begun(slots: RequestSlots, namespace: str, count: int = 1) -> list["asyncio.Task[Slot]"]:
    tasks = [asyncio.create_task(slots.take(namespace)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


def _have_places(tasks: list["asyncio.Task[Slot]"]) -> int:
    return sum(task.done() for task in tasks)


async def _end(*tasks: "asyncio.Task[Slot]") -> None:
    for task in tasks:
        (await task).end()
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_namespaces_that_wait_get_places_in_turn() -> None:
    """However many writes one of them has."""
    slots = RequestSlots(2)
    many, few = await _begun(slots, "a", 6), await _begun(slots, "b", 2)
    assert (_have_places(many), _have_places(few)) == (2, 0)
    await _end(*many[:2])
    assert (_have_places(many), _have_places(few)) == (3, 1)
    await _end(many[2], few[0])
    await _end(*many[3:], few[1])


async def test_a_write_that_waits_long_leaves_its_place_and_its_namespace_gets_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its API server waits for a webhook; when none of it is slow any more, it gets places as others do."""
    monkeypatch.setattr(request_slots, "_SLOW_S", 0.01)
    slots = RequestSlots(8)
    slow = await _begun(slots, "a", 12)
    assert _have_places(slow) == 8

    async def others_go() -> bool:
        (other,) = await _begun(slots, "b")
        done = other.done()
        await _end(other) if done else other.cancel()
        return done

    await eventually(others_go)
    assert _have_places(slow) == 8
    await _end(*slow[:7])
    assert _have_places(slow) == 8
    await _end(slow[7])
    assert _have_places(slow) == 12
    await _end(*slow[8:])


async def test_a_place_is_not_lost_with_a_write_that_is_given_up() -> None:
    """Neither while it waits, nor in the moment in which it gets its place."""
    slots = RequestSlots(1)
    (first,), waiting = await _begun(slots, "a"), await _begun(slots, "a", 3)
    waiting[0].cancel()
    await asyncio.sleep(0)
    (await first).end()
    waiting[1].cancel()
    await asyncio.gather(*waiting[:2], return_exceptions=True)
    await asyncio.sleep(0)
    assert waiting[2].done()
    await _end(waiting[2])
    assert slots._namespaces == {}
