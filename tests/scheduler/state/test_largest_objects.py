"""One object, however large and whatever it holds, costs about what decoding it costs, and leaves nothing behind.

An ordinary run takes a part of the fields, by the commit's seed.

`bench.hostile_objects` measures the same objects in their full size against 50 ms.
"""

import gc
import tracemalloc
from typing import Any

import pytest

from bench.hostile_objects import Cluster, cases, decoding_s, roles
from bench.loads.largest_objects import LARGEST, Filled
from tests.support.seeds import Part

NODES = 100
# Small enough for an ordinary run: what is quadratic takes many times its share here too.
SIZE = 64 << 10
# Whose objects are kept in some form, and are many.
KEPT = ("Node", "Pod, pending", "Pod, bound")
# A step may take so many times what the standard library takes to decode the object, and so many seconds besides: a
# decision takes some of those whatever the object is.
TIMES, BESIDES_S = 8, 0.015


def _cases(role: str) -> list[tuple[type[Any], Filled]]:
    return [(kind, filled) for found, kind, filled in cases(role) if found == role]


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster(NODES)


def _longest(cluster: Cluster, kind: type[Any], filled: Filled) -> tuple[float, str]:
    cluster.steps_s.clear()
    cluster.live_through(kind, filled, size=SIZE)
    return max(cluster.steps_s)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("role", roles())
def test_no_step_takes_longer_than_an_object_of_its_size_is_worth(cluster: Cluster, role: str, part: Part) -> None:
    """Each field of each kind that is watched, filled in each way; the best of three, as other programs run too."""
    slow = []
    for kind, filled in part.of(_cases(role), role):
        limit_s = BESIDES_S + TIMES * decoding_s(filled.document(0, SIZE))
        took = _longest(cluster, kind, filled)
        if took[0] > limit_s:
            took = min(_longest(cluster, kind, filled) for _ in range(3))
        if took[0] > limit_s:
            slow.append(f"{filled.name}: {took[0] * 1000:.0f} ms to {took[1]}, more than {limit_s * 1000:.0f}")
    assert slow == []
    cluster.machine.check()


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_deleted_objects_leave_no_memory(part: Part) -> None:
    """However many different ones come and go, what is kept of them is less than ten of the largest size."""
    for role in part.of(KEPT, "memory"):
        cluster, filled = Cluster(NODES), part.of(_cases(role), f"memory of {role}")
        # A little more in all than may be kept.
        kept = _kept_after(cluster, filled, 1 + 11 * LARGEST // (2 * SIZE * len(filled)))
        assert kept < 10 * LARGEST, role
        cluster.machine.check()


def _kept_after(cluster: Cluster, filled: list[tuple[type[Any], Filled]], rounds: int) -> int:
    """Return the bytes that are kept after so many rounds of two new objects of each kind and field."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(rounds):
            for kind, one in filled:
                cluster.live_through(kind, one, (2 * number, 2 * number + 1), SIZE)
                cluster.steps_s.clear()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
