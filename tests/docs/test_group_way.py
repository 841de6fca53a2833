"""The files that the page for contributors names on a group's way are called there."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from mooring.kube.events import Changed, Identity
from scheduler.cycle.decisions import Bind
from scheduler.kube.objects import Node, Pod
from scheduler.state.machine import Machine
from tests.docs.pages import ROOT, section

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


@contextmanager
def _calls() -> Iterator[set[str]]:
    """Record the files of this repository whose functions are called."""
    files, profiler = set[str](), sys.getprofile()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(profiler)


def _relative(files: set[str]) -> set[str]:
    return {str(Path(file).relative_to(ROOT)) for file in files if Path(file).is_relative_to(ROOT)}


def test_each_step_of_a_group_calls_the_files_that_the_page_names() -> None:
    """The last member's event, then the decision; files that do I/O are not called here."""
    events, steps = re.findall(r"^- (A.+?)\n(?=^- |\n)", section("contributing.md", "Read the tree"), re.M | re.S)[-2:]
    event_files, step_files = (
        {path for path in re.findall(r"`(scheduler/[\w/]+\.py)`", text) if not path.startswith("scheduler/server/")}
        for text in (events, steps)
    )
    machine = Machine("mooring")
    node = msgspec.convert({"metadata": {"name": "n1"}, "spec": {}, "status": STATUS}, Node)
    machine.handle(Node, Changed(Identity("n1"), node), 0.0)
    first, last = (Changed(Identity(name, "default", name), msgspec.convert(_pod(name), Pod)) for name in ("p1", "p2"))
    machine.handle(Pod, first, 0.0)
    with _calls() as called:
        machine.handle(Pod, last, 0.0)
    assert len(event_files) > 1
    assert event_files - _relative(called) == set()
    with _calls() as called:
        binds = [one for _ in range(9) for one in machine.step(1.0) or () if isinstance(one, Bind)]
    assert len(binds) == 2
    assert len(step_files) > 1
    assert step_files - _relative(called) == set()
