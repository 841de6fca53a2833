"""The page for contributors names the files and calls on a group's way: at most twelve files, and no other is passed.

The files are those of the calls in progress at some points. Calls that have returned by then are not seen: the page
names their files below the way.
"""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from mooring.kube.events import Changed, Identity
from scheduler.cache.groups.group_cache import Members
from scheduler.cycle.cycle import SchedulingCycle
from scheduler.cycle.decisions import Bind
from scheduler.cycle.groups.group_cycle import GroupCycle
from scheduler.kube.objects import Node, Pod
from scheduler.pending.pending_pods import PendingPods
from scheduler.queue.queue import Queue
from scheduler.state.binding_cycle import BindingCycle
from scheduler.state.machine import Machine
from tests.docs.pages import ROOT, section

MOST_FILES = 12
# Calls of what does I/O, and of the results of writes, which are not made here.
OTHER_CALLS = {
    "Loop._take",
    "Loop._decide",
    "Loop._carry_out",
    "Writes.put",
    "Machine.finished",
    "BindingCycle.finished",
}
# The page says that nobody needs to open it.
QUEUE = "scheduler/queue/queue.py"
STATUS = {
    "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "9"},
    "conditions": [{"type": "Ready", "status": "True"}],
    "nodeInfo": {"bootID": "b"},
}


def _pod(name: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": "default",
        "uid": name,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    metadata["annotations"] = {"mooring.dev/group": '{"name": "g", "min": 2}'}
    return {"metadata": metadata, "spec": {"schedulerName": "mooring", "containers": [{"name": "c"}]}}


# Where a pod is read and joins its group, the group enters and leaves the queue, a member gets its node, all are
# committed, and the Binds are returned.
STATIONS: tuple[Callable[..., Any], ...] = (
    PendingPods.put,
    Members.put,
    Queue.add,
    Queue.pop,
    SchedulingCycle._make_bind,
    GroupCycle._commit,
    BindingCycle.await_volumes,
)


@contextmanager
def _way() -> Iterator[tuple[set[str], set[str]]]:
    """Record the names of all calls, and at each station the files of the calls in progress."""
    codes = {station.__code__ for station in STATIONS}
    files, calls, profiler = set[str](), set[str](), sys.getprofile()

    def note(frame: FrameType | None, event: str, _: object) -> None:
        if event == "call" and frame is not None:
            calls.add(frame.f_code.co_qualname)
        if event == "call" and frame is not None and frame.f_code in codes:
            while frame is not None:
                path = Path(frame.f_code.co_filename)
                if path.is_relative_to(ROOT / "scheduler"):
                    files.add(str(path.relative_to(ROOT)))
                frame = frame.f_back

    sys.setprofile(note)
    try:
        yield files, calls
    finally:
        sys.setprofile(profiler)


def test_the_page_names_exactly_the_files_that_a_group_passes() -> None:
    """The last member's event, then the decision; what does I/O, in server/, is not called here."""
    (way,) = re.findall(
        r"^\*\*One group, .+?(?=^You need not)", section("contributing.md", "Read the tree"), re.M | re.S
    )
    all_files = re.findall(r"`(scheduler/[\w/]+\.py)`", way)
    assert len(all_files) == len(set(all_files)) <= MOST_FILES
    machine = Machine("mooring")
    node = msgspec.convert({"metadata": {"name": "n1"}, "spec": {}, "status": STATUS}, Node)
    machine.handle(Node, Changed(Identity("n1"), node), 0.0)
    first, last = (Changed(Identity(name, "default", name), msgspec.convert(_pod(name), Pod)) for name in ("p1", "p2"))
    machine.handle(Pod, first, 0.0)
    with _way() as (files, calls):
        machine.handle(Pod, last, 0.0)
        binds = [one for _ in range(9) for one in machine.step(1.0) or () if isinstance(one, Bind)]
    assert len(binds) == 2
    assert {file for file in all_files if not file.startswith("scheduler/server/")} == files - {QUEUE}
    assert {name for name in re.findall(r"`(\w+\.\w+)`", way) if name not in OTHER_CALLS} <= calls
