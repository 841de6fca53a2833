"""How long the decoding of the largest objects takes."""

import json
import time
from typing import Any

from mooring.kube.watch import Decoder, read_line
from scheduler.kube.objects import Node


def test_a_node_of_nothing_but_images_takes_a_moment() -> None:
    """Less than the standard library needs for such a list, of which it makes half a million objects."""
    document = {"metadata": {"name": "n1", "uid": "u1", "resourceVersion": "7"}, "status": {"images": [{}] * 500_000}}
    text = json.dumps({"type": "MODIFIED", "object": document}).encode()
    took = {
        name: min(_seconds(act) for _ in range(3))
        for name, act in {"ours": lambda: read_line(text, Decoder(Node)), "json": lambda: json.loads(text)}.items()
    }
    assert took["ours"] < took["json"], took


def _seconds(act: Any) -> float:
    began = time.thread_time()
    act()
    return time.thread_time() - began
