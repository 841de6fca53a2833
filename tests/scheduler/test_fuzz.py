"""Any pod, node or annotation, however malformed, may leave that object out; it never stops the rest."""

import random
from collections.abc import Callable
from typing import Any

import msgspec

from mooring import names
from mooring.inventory import Pf
from mooring.kube.events import Changed, Event, Identity, Unreadable
from scheduler.cycle import Bind
from scheduler.machine import Instruction, Machine
from scheduler.objects import Node, Pod

MakePf = Callable[..., Pf]
MakeNode = Callable[..., Node]
MakePod = Callable[..., Pod]
INPUTS = 3000
ASSIGNMENT = (
    '{"v":1,"uid":"UID","node":"n1","vfs":'
    '[{"pf":"pf0","vf":0,"pci":"0000:04:00.2","link":"ethernet","network":"rail0"}]}'
)
STRANGE: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    "",
    "x",
    "-5",
    "1e99",
    "\x00",
    "n1",
    "mooring",
    [],
    {},
    [None],
    [{}],
    {"": None},
    {"cpu": "x"},
    [[[[]]]],
)


def _mutate(document: Any, source: random.Random) -> Any:
    """Return a document with one value somewhere in it replaced, removed or, in a text, one character changed."""
    if isinstance(document, dict) and document and source.random() < 0.9:
        key = source.choice(sorted(document))
        changed = {name: value for name, value in document.items() if name != key or source.random() < 0.9}
        return changed | ({key: _mutate(document[key], source)} if key in changed else {})
    if isinstance(document, list) and document and source.random() < 0.9:
        index = source.randrange(len(document))
        return [*document[:index], _mutate(document[index], source), *document[index + 1 :]]
    if isinstance(document, str) and document and source.random() < 0.6:
        index = source.randrange(len(document))
        return document[:index] + source.choice('{}[]",:0x\u0661\ud7ff') + document[index + 1 :]
    return source.choice(STRANGE)


def _event(document: Any, kind: type[Pod] | type[Node]) -> Event[Any]:
    """Return the event that the watch would make of a document."""
    metadata = document.get("metadata") if isinstance(document, dict) else None
    try:
        identity = msgspec.convert(metadata, Identity)
    except msgspec.ValidationError:
        identity = Identity()
    try:
        return Changed(identity, msgspec.json.decode(msgspec.json.encode(document), type=kind))
    except (msgspec.MsgspecError, ValueError) as unreadable:
        return Unreadable(identity, str(unreadable))


def _rich_pod(make_pod: MakePod) -> Any:
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}]
            }
        }
    }
    container = {
        "name": "c",
        "ports": [{"hostPort": 80}],
        "resources": {"requests": {"cpu": "100m"}, "limits": {"rdma-sriov/dev-infiniband-mount": "1"}},
    }
    pod = make_pod(
        request=[{"min_tx_rate": 5, "network": "rail0", "containers": ["c"]}],
        annotations={names.PLACEMENT: '{"pfs":"spread"}'},
        spec={"affinity": affinity, "containers": [container], "tolerations": [{"key": "k", "operator": "Exists"}]},
    )
    return msgspec.json.decode(msgspec.json.encode(pod))


def test_malformed_pods_and_nodes_stop_nothing(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """After thousands of them, applied and decided about, a good pod is still placed on a good node."""
    source = random.Random(7)
    for number in range(INPUTS):
        pod, node = _rich_pod(make_pod), msgspec.to_builtins(make_node("n1", (make_pf(),), labels={"a": "2"}))
        node = msgspec.json.decode(msgspec.json.encode(node))
        if number % 3:
            pod = _mutate(_mutate(pod, source), source)
        else:
            node = _mutate(_mutate(node, source), source)
        machine.nodes(_event(node, Node), float(number))
        machine.pods(_event(pod, Pod), float(number))
        machine.step(float(number))
        if number % 100 == 0:
            machine.check()
    good = make_node("good", (make_pf(vfs=200),), spec={}, allocatable={"pods": "99999", "cpu": "9999"})
    wanted = make_pod(request=[{}], spec={"priority": 9, "nodeName": None})
    machine.nodes(Changed(Identity("good"), good), 1e6)
    machine.pods(Changed(Identity(uid=wanted.metadata.uid), wanted), 1e6)
    bound = {one.task.uid for one in _decide_all(machine, 1e6) if isinstance(one, Bind)}
    assert wanted.metadata.uid in bound


def test_malformed_annotations_are_refused_by_name(
    machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """Requests, assignments and inventories that are nearly valid: each is taken or refused, and the state holds."""
    source = random.Random(11)
    inventory = (make_node("n", (make_pf(),)).metadata.annotations or {})[names.INVENTORY]
    for number in range(INPUTS):
        uid = f"bound-{number % 10}"
        forged = _text(ASSIGNMENT.replace("UID", uid), source)
        bound = make_pod(node="n1", metadata={"uid": uid}, annotations={names.ASSIGNMENT: forged})
        waiting = make_pod(annotations={names.REQUEST: _text('[{"min_tx_rate":5,"vlan":100},{}]', source)})
        node = make_node("n1", annotations={names.INVENTORY: _text(inventory, source)})
        machine.nodes(Changed(Identity("n1"), node), float(number))
        for one in (bound, waiting):
            machine.pods(Changed(Identity(uid=one.metadata.uid), one), float(number))
        if number % 100 == 0:
            _decide_all(machine, float(number))
            machine.check()
    assert machine.cluster.node("n1") is not None


def _decide_all(machine: Machine, now: float) -> list[Instruction]:
    found: list[Instruction] = []
    while (instructions := machine.step(now)) is not None:
        found += instructions
    return found


def _text(text: str, source: random.Random) -> str:
    """Return a text with a few characters changed, doubled or cut."""
    for _ in range(source.randint(0, 3)):
        index = source.randrange(len(text))
        piece = source.choice(("", text[index] * 2, '"', "9" * 30, "null", "[", "\u0661"))
        text = text[:index] + piece + text[index + 1 :] or "{"
    return text
