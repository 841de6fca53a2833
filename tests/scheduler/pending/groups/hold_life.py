"""Groups with first call on what becomes free, and small pods that come and go beside them."""

from collections import deque
from typing import Any

import pytest

from scheduler.kube.objects import Pod
from tests.scheduler.group_life import PAIR, Life, binds, bound_names
from tests.scheduler.pending.groups.conftest import MakeLife

HOLD_S = 30.0


@pytest.fixture
def life(make_life: MakeLife) -> Life:
    return make_life(hold_s=HOLD_S)


def hold(life: Life, group: str = PAIR, count: int = 2) -> list[Pod]:
    """Let a group come for which there is no room, and wait until it has first call on what becomes free."""
    members = life.members(count, group)
    life.work(2 * HOLD_S)
    life.work(1.0)
    return members


def full(life: Life, *nodes: str, labels: dict[str, str] | None = None, **fields: Any) -> list[Pod]:
    """Fill each node with one pod."""
    life.nodes(*nodes, labels=labels or {})
    return life.place(*(life.make_pod(f"on-{node}", [{}, {}], **fields) for node in nodes))


def kept_on(life: Life) -> list[str]:
    """Return the nodes of all nominated pods, one for each pod."""
    return sorted(room.node for one in life.machine.reservations.all() for room in one.rooms.values())


def small(life: Life, number: int, **fields: Any) -> Pod:
    """Return a pod that takes half of what a member needs."""
    return life.make_pod(f"small-{number}", [{}], **fields)


def small_ones(life: Life, *nodes: str, labels: dict[str, str] | None = None, **fields: Any) -> deque[Pod]:
    """Fill each node with two small pods."""
    life.nodes(*nodes, labels=labels or {})
    life.see(*(small(life, number, **fields) for number in range(2 * len(nodes))))
    return deque(life.bound(*binds(life.work())))


def small_stream(life: Life, running: deque[Pod], pods: int, **fields: Any) -> list[str]:
    """Let small pods end one by one, as they came, each followed by another one, until members are bound."""
    for number in range(100, 100 + pods):
        life.see(small(life, number, **fields))
        life.work(1.0)
        life.gone(running.popleft())
        found = life.work(1.0)
        if any(name.startswith("m") for name in bound_names(found)):
            return bound_names(found)
        running.extend(life.bound(*binds(found)))
        if not running:
            break
    return []
