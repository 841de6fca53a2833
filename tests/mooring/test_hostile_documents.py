"""Whatever a document of the contract holds in one of its fields, reading it costs about what decoding it costs."""

import contextlib
import gc
import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from mooring import names
from mooring.annotations.assignment import read_assignment, verified_assignment
from mooring.annotations.drain import read_drain
from mooring.annotations.inventory import MOST_INVENTORY_CHARACTERS, read_inventory
from mooring.annotations.request import MOST_CHARACTERS, read_request
from mooring.errors import ContractError
from mooring.parsing import MAX_BYTES
from mooring.records.ledger import read_ledger_entry
from mooring.records.node_offer import read_node_offer
from mooring.records.pod_record import read_pod_record
from mooring.records.shared_ports import read_shared_ports
from tests.support.seeds import Part

# Reading may take so many times what the standard library takes to decode the same text, and so many seconds besides.
TIMES, BESIDES_S = 12, 0.005
ADDRESS = "0000:04:00.5"
# An escaped letter, and half of a character.
ESCAPE, HALF = "\\u0041", "\\ud800"
VF = {
    "pf": "pf0",
    "vf": 3,
    "pci": ADDRESS,
    "link": "ethernet",
    "network": "rail0",
    "min_tx_rate": 5,
    "containers": ["c"],
}
ASSIGNMENT = {"v": 1, "uid": "uid-1", "node": "n1", "vfs": [VF], "ext": {"gpu": {"units": ["a"]}}}
PF = {
    "name": "pf0",
    "pci": "0000:04:00.0",
    "link": "ethernet",
    "network": "rail0",
    "mbps": 9,
    "offer_mbps": 9,
    "up": True,
}
PF |= {"vf0": ADDRESS, "stride": 1, "vfs": "0-3", "can": ["vlan"], "allow": {"vlan": "1-2"}, "pcie": ["0000:00:01.0"]}
PF |= {"out": [{"vfs": "1", "why": "x", "min_tx_rate": 1}], "port": "p", "numa": 0, "rdma": "mlx5_0"}
PF |= {"access": {"namespaces": ["team-a"], "max_share": 50, "entry": 1}}
ENTRY = {"v": 1, "pci": ADDRESS, "pf": "pf0", "vf": 3, "phase": "held", "boot": "b", "uid": "uid-1", "container": "c"}
Reader = Callable[[str], object]
DOCUMENTS: dict[str, tuple[Reader, Any, int]] = {
    "request": (
        lambda text: read_request({names.REQUEST: text}), [{"min_tx_rate": 5, "name": "a", "containers": ["c"]}],
        MOST_CHARACTERS,
    ),
    "rit-k8s-rdma": (lambda text: read_request({names.RIT_REQUEST: text}), [{"min_tx_rate": 5}], MOST_CHARACTERS),
    "inventory": (
        read_inventory, {"v": 1, "boot": "b", "pfs": [PF], "programs": {"a": "1"}}, MOST_INVENTORY_CHARACTERS
    ),
    "assignment": (read_assignment, ASSIGNMENT, MAX_BYTES),
    "believed assignment": (
        lambda text: verified_assignment({names.ASSIGNMENT: text}, "uid-1", "n1"), ASSIGNMENT, MAX_BYTES
    ),
    "pod record": (
        lambda text: read_pod_record(text, "pods/uid-1.json"), {"v": 1, "pod": "a/b", "assignment": ASSIGNMENT},
        MAX_BYTES,
    ),
    "ledger entry": (lambda text: read_ledger_entry(text, f"vfs/{ADDRESS}.json"), ENTRY, MAX_BYTES),
    "offer": (read_node_offer, {"v": 1, "pfs": {ADDRESS: {"default_share_mbps": 1, "namespaces": ["a"]}}}, MAX_BYTES),
    "ports": (read_shared_ports, {"v": 1, "ports": [[ADDRESS]]}, MAX_BYTES),
    "drain": (read_drain, ["pf0"], MAX_BYTES),
}  # fmt: skip


def _object(fields: Iterable[str]) -> str:
    return "{" + ",".join(fields) + "}"


def _list(items: Iterable[str]) -> str:
    return "[" + ",".join(items) + "]"


def _fillers(size: int) -> Iterator[tuple[str, str]]:
    """Yield JSON values of so many characters by name, valid or not."""
    yield "deep", "[" * size
    yield "fields", _object(f'"{number:06x}":0' for number in range(size // 11))
    yield "the last field twice", _object(f'"{max(number, 1):06x}":0' for number in range(size // 11, 0, -1))
    yield "the first field twice", _object(f'"{max(number - 1, 0):06x}":0' for number in range(size // 11))
    yield "empty lists", _list(["[]"] * (size // 3))
    yield "empty objects", _list(["{}"] * (size // 3))
    yield "texts", _list(f'"{number:06x}"' for number in range(size // 9))
    yield "a text", f'"{"x" * size}"'
    yield "escapes", f'"{ESCAPE * (size // 6)}"'
    yield "half characters", f'"{HALF * (size // 6)}"'
    yield "digits", "9" * size
    yield "numbers of many digits", _list(["9" * 4000] * (size // 4001))
    yield "a fraction", "0." + "9" * size
    yield "ranges", f'"{",".join(str(2 * number) for number in range(size // 6))}"'
    yield "colons", f'"{":" * size}"'
    yield "letters and hyphens", f'"{"a-" * (size // 2)}"'


def _paths(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of each value in a document."""
    yield path
    inner = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in inner:
        yield from _paths(value, (*path, key))


def _filled(document: Any, path: tuple[Any, ...], filler: str) -> str:
    """Return a document as JSON with this text in one place."""
    if not path:
        return filler
    inner = {**document} if isinstance(document, dict) else list(document)
    inner[path[0]] = "\0" if len(path) == 1 else f"\1{_filled(document[path[0]], path[1:], filler)}"
    text = json.dumps(inner, separators=(",", ":"))
    mark = json.dumps(inner[path[0]])
    return text.replace(mark, filler if len(path) == 1 else inner[path[0]][1:])


def _cpu_s(step: Callable[[str], object], text: str) -> float:
    """Return what a step takes, without the collector: it goes through whatever other tests have left, or does not."""
    gc.collect(0)
    gc.disable()
    try:
        began = time.thread_time()
        with contextlib.suppress(ContractError, ValueError, RecursionError):
            step(text)
        return time.thread_time() - began
    finally:
        gc.enable()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_reading_a_document_costs_what_decoding_it_costs(name: str, part: Part) -> None:
    """Each place of each document (an ordinary run takes a part), filled up to the longest text with every shape."""
    read, document, longest = DOCUMENTS[name]
    slow = []
    for path in part.of(list(_paths(document)), name):
        for shape, filler in _fillers(longest - 1024):
            text = _filled(document, path, filler)
            limit_s = BESIDES_S + TIMES * min(_cpu_s(json.loads, text) for _ in range(3))
            took_s = _cpu_s(read, text)
            if took_s > limit_s:
                took_s = min(_cpu_s(read, text) for _ in range(3))
            if took_s > limit_s:
                slow.append(f"{path}, {shape}: {took_s * 1000:.0f} ms, more than {limit_s * 1000:.0f}")
    assert slow == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_documents_are_valid_until_they_are_filled(name: str) -> None:
    """Else the fields behind the first fault would never be read. A ledger entry has more fields than are filled."""
    read, document, _ = DOCUMENTS[name]
    if name != "ledger entry":
        read(json.dumps(document))
