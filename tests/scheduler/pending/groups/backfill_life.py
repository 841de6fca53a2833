"""A machine with ``--backfill``, pods with run times on it, and the promise to the first group."""

from typing import Any

import pytest

from mooring import names
from scheduler.kube.objects import Pod
from scheduler.pending.groups.promises import read_promise
from tests.scheduler.group_life import PAIR, Life, changed
from tests.scheduler.pending.groups.conftest import MakeLife

HOUR_S = 3600.0


@pytest.fixture
def life(make_life: MakeLife) -> Life:
    return make_life(backfill=True)


def timed(life: Life, name: str, runs: str, request: list[Any] | None = None, **fields: Any) -> Pod:
    annotations = {names.RUNS: runs} if runs else {}
    return life.make_pod(name, [{}, {}] if request is None else request, annotations=annotations, **fields)


def run(life: Life, *pods: Pod) -> list[Pod]:
    """Let pods start, and be Running at once."""
    bound = life.place(*pods)
    running = [changed(pod, status={"phase": "Running"}) for pod in bound]
    life.see(*running)
    assert len(running) == len(pods)
    return running


def wait(life: Life, group: str = PAIR, count: int = 2) -> str:
    """Let a group arrive that has to wait; return its message."""
    life.members(count, group)
    life.work(1.0)
    life.work(1.0)
    return message_of(life)


def message_of(life: Life) -> str:
    uid = next(uid for uid in life.machine.pending_pods.uids() if "m0" in life.machine.pending_pods[uid].pod.key)
    return life.machine.pending_pods[uid].reported_message


def start_of(life: Life) -> float:
    """Return the promised start, without the time that nodes need."""
    promise = read_promise(message_of(life), 0.0)
    assert promise is not None, message_of(life)
    return promise.at
