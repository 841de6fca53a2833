"""How kinds are decoded that are larger than usual."""

import json
import time
from typing import Any

from mooring.kube.events import Changed
from mooring.kube.watch import WatchLine, read_line
from scheduler.kube.objects import Node
from scheduler.server.watching.reflectors import decoder_of

STATUS = {
    "allocatable": {"cpu": "4"},
    "capacity": {"cpu": "8"},
    "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    "nodeInfo": {"bootID": "b"},
}


def read(document: dict[str, Any]) -> Node:
    line = read_line(json.dumps({"type": "MODIFIED", "object": document}).encode(), decoder_of(Node))
    assert isinstance(line, WatchLine)
    assert isinstance(line.event, Changed)
    found: Node = line.event.item
    return found


def node(images: list[dict[str, Any]]) -> dict[str, Any]:
    metadata = {"name": "n1", "uid": "u1", "resourceVersion": "7", "labels": {"a": "b"}, "annotations": {"c": "d"}}
    spec = {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]}
    return {"metadata": metadata, "spec": spec, "status": {**STATUS, "images": images}}


def test_a_node_beyond_any_usual_size_is_read_without_its_images() -> None:
    """All else of it is as with few of them; a tag more, and a list of 100 KB is read."""
    few = [{"names": ["i:1"], "sizeBytes": 7}]
    usual, large = read(node(few)), read(node(few * 20_000))
    assert usual.status.images is not None
    assert [image.names for image in usual.status.images] == [["i:1"]]
    assert len(read(node(few * 2_000)).status.images or ()) == 2_000
    usual.status.images = None
    assert large == usual


def test_a_node_of_nothing_but_images_takes_a_moment() -> None:
    """Less than the standard library needs for such a list, of which it makes half a million objects."""
    document = node([])
    document["status"]["images"] = [{}] * 500_000
    text = json.dumps({"type": "MODIFIED", "object": document}).encode()
    took = {
        name: min(_seconds(act) for _ in range(3))
        for name, act in {"ours": lambda: read_line(text, decoder_of(Node)), "json": lambda: json.loads(text)}.items()
    }
    assert took["ours"] < took["json"], took


def _seconds(act: Any) -> float:
    began = time.thread_time()
    act()
    return time.thread_time() - began
