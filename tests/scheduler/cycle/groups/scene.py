"""What happens to a group in a small cluster, as steps of stories, and words for nodes, pods and members.

Nodes: ``a*2`` are nodes a-0 and a-1 in rack a, ``x.a`` is a node in zone x and rack a, ``?`` stands for no label, and
``n/a`` names node n-0. Amounts are ``:4+4`` VFs of each PF (2 without), ``@8`` cpus and ``#1`` pods; ``!`` is cordoned.
Nodes by networks: ``n1 a b:4 c! ~d`` is a node with a PF of a VF, or of four, on each network; that of c is down, and
other pods hold that of d.
Members: ``3`` that want two VFs, ``3:8@1`` that want eight and a cpu. Pods: ``a:1`` wants a VF in rack a.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any

import pytest

from mooring.annotations.inventory import Pf
from scheduler.cycle.instructions import Instruction
from scheduler.kube.objects import Pod
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.group_life import Life, binds, changed, told
from tests.scheduler.story import words_of

_WORD = re.compile(
    r"(?:(?P<name>\w+)/)?(?P<path>[^:@#^~!]*)(?::(?P<vfs>[\d+]+))?(?:@(?P<cpu>[\d.]+))?(?:#(?P<pods>\d+))?"
    r"(?:\^(?P<priority>\d+))?(?:~(?P<minute>\d+))?(?P<cordoned>!?)"
)
_PF = re.compile(r"(?P<held>~?)(?P<network>\w+)(?::(?P<vfs>\d+))?(?P<down>!?)")
# How the fields of a group are read that a story gives.
_READ: dict[str, Callable[[str], object]] = {
    "min": int,
    "prefer": lambda text: text.split(","),
    "slices": lambda text: [{"within": label, "size": int(size)} for label, size in re.findall(r"(\w+):(\d+)", text)],
}
INDEX = "batch.kubernetes.io/job-completion-index"


def amounts(words: Iterable[str]) -> Iterator[dict[str, str]]:
    for word in words:
        match = _WORD.fullmatch(word)
        assert match, f"{word!r} is neither a node nor a pod"
        yield match.groupdict("")


def cpus(amount: object) -> dict[str, Any]:
    """Return the spec of a pod with one container that requests this much cpu."""
    return {"containers": [{"name": "c", "resources": {"requests": {"cpu": str(amount)}}}]}


def places(instructions: Iterable[Instruction]) -> dict[str, str]:
    """Return the node of each pod that is bound."""
    return {one.pod_info.pod.metadata.name: one.assigned.node for one in binds(instructions)}


def nodes_of_members(instructions: Iterable[Instruction]) -> dict[int, str]:
    """Return the node of each member that is bound, in the order of their numbers."""
    nodes = places(instructions)
    return {rank: nodes[f"m{rank}"] for rank in sorted(int(name[1:]) for name in nodes if name.startswith("m"))}


def racks_of_members(instructions: Iterable[Instruction]) -> str:
    return " ".join(node.rpartition("-")[0] for node in nodes_of_members(instructions).values())


def message_of(instructions: Iterable[Instruction]) -> str:
    """Return what all waiting members are told."""
    (message,) = set(told(instructions).values())
    return message


def can_pack(sizes: list[int], bins: list[tuple[int, int]]) -> bool:
    """Return whether bins of so many pieces, and so much in sum, can hold all pieces, by trying each bin for each."""
    if not sizes:
        return True
    first, *rest = sizes
    return any(
        count > 0 and free >= first and can_pack(rest, [*bins[:k], (count - 1, free - first), *bins[k + 1 :]])
        for k, (count, free) in enumerate(bins)
    )


class Scene(Life):
    """A machine, and a group's members m0, m1 and so on."""

    group = ""
    # If members have ranks: what draws the order in which they come.
    ranks: Random | None = None

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # Pods that are bound, by name.
        self.running = dict[str, Pod]()
        # What members that come have beside the defaults, and the request, spec and labels of each that came.
        self.spec, self.labels = dict[str, Any](), dict[str, str]()
        self.wants = dict[str, tuple[object, dict[str, Any], dict[str, str]]]()
        self.decided = list[Instruction]()

    def put_node(self, name: str, *pfs: Pf, **fields: Any) -> None:
        """Show a node; its labels have its name as well."""
        fields["labels"] = {"name": name, "kubernetes.io/hostname": name} | fields.get("labels", {})
        self.show_node(name, *pfs, **fields)

    def build(self, text: str, keys: Sequence[str] = ("region", "zone", "rack")) -> None:
        """Show nodes; ``keys`` are their labels from wide to narrow, the last ones of which are used."""
        self.nodes(*words_of(text), keys=keys)

    def nodes(self, *names: str, keys: Sequence[str] = ("region", "zone", "rack"), **fields: Any) -> None:
        assert not fields, f"{fields} belong to the words of nodes"
        numbers = dict[str, int]()
        for word in amounts(names):
            name = word["name"] or word["path"]
            values = word["path"].split(".")
            labels = {key: value for key, value in zip(keys[-len(values) :], values, strict=True) if value != "?"}
            pfs = [self.make_pf(k, int(vfs)) for k, vfs in enumerate((word["vfs"] or "2").split("+"))]
            allocatable = {"cpu": word["cpu"] or "8", "pods": word["pods"] or "110"}
            spec = {"unschedulable": bool(word["cordoned"])}
            number = numbers[name] = numbers.get(name, -1) + 1
            self.put_node(f"{name}-{number}", *pfs, labels=labels, allocatable=allocatable, spec=spec)

    def wire(self, text: str, **fields: Any) -> None:
        """Show a node by the networks of its PFs, as in the text above."""
        name, *words = text.split()
        matches = [match for word in words if (match := _PF.fullmatch(word))]
        assert len(matches) == len(words), text
        pfs = [
            self.make_pf(k, int(match["vfs"] or 1), network=match["network"], up=not match["down"])
            for k, match in enumerate(matches)
        ]
        self.put_node(name, *pfs, **fields)
        if held := [match["network"] for match in matches if match["held"]]:
            self.occupy(name, *held)

    def occupy(self, node: str, *networks: str, priority: int = 0) -> None:
        """Let other pods have a VF on each of these networks of a node."""
        spec = {"nodeSelector": {"name": node}, "priority": priority}
        pods = [self.make_pod("", [{"network": network}], spec=spec) for network in networks]
        assert len(self.place(*pods)) == len(pods)

    def ask(self, *requests: object, **group: Any) -> None:
        """Let members come with these requests."""
        self._see_members([(request, self.spec) for request in requests], group)

    def job(self, *members: str, **group: Any) -> None:
        """Let members come, as in the text above."""
        words = [word for word in amounts(members) for _ in range(int(word["path"]))]
        wants: list[Any] = [([{}] * int(word["vfs"] or 2), self.spec | cpus(word["cpu"] or 0)) for word in words]
        self._see_members(wants, group)

    def _see_members(self, wants: Sequence[tuple[object, dict[str, Any]]], group: dict[str, Any]) -> None:
        self.set_group(len(wants), group)
        first = len(self.wants)
        for rank, want in enumerate(wants, first):
            self.wants[f"m{rank}"] = *want, self.labels | ({INDEX: str(rank)} if self.ranks else {})
        comers = list(self.wants)[first:]
        for name in self.ranks.sample(comers, len(comers)) if self.ranks else comers:
            self.again(name)

    def again(self, *names: str) -> None:
        for name in names:
            request, spec, labels = self.wants[name]
            self.see(self.member(name, self.group, request=request, spec=spec, metadata={"labels": labels}))

    def set_group(self, count: int, fields: dict[str, Any]) -> None:
        """Set what members say of their group, unless some have come already; ``slices=rack:3`` are of three."""
        fields = {key: _READ.get(key, str)(value) if isinstance(value, str) else value for key, value in fields.items()}
        self.group = self.group or json.dumps({"name": "train", "min": count} | fields)

    def steps(self, count: int) -> list[Instruction]:
        return [one for _ in range(count) for one in self.machine.step(self.now) or ()]

    def run(self) -> str:
        """Decide, and return the racks of the members that are bound, in the order of their numbers."""
        self.decided = self.work(10.0)
        self.bound(*binds(self.decided))
        return racks_of_members(self.decided)

    def pods(self, *words: str) -> None:
        for number, word in enumerate(amounts(words)):
            spec = {} if word["path"] == "?" else {"nodeSelector": {"rack": word["path"]}}
            self.see(self.make_pod(f"p{number}", [{}] * int(word["vfs"] or 2), spec=spec))

    def lose(self, node: str) -> None:
        self.remove_node(node)

    def delete(self, *pods: str) -> None:
        self.gone(*(self.running[name] for name in pods))

    def fail(self, *pods: str) -> None:
        self.see(*(changed(self.running[name], status={"phase": "Failed"}) for name in pods))

    def crash(self, *pods: str) -> None:
        """Let pods go with their nodes."""
        for name in pods:
            self.lose(self.running[name].spec.node_name or "")
            self.delete(name)

    def bound(self, *decisions: Any) -> list[Pod]:
        pods = super().bound(*decisions)
        self.running |= {pod.metadata.name: pod for pod in pods}
        return pods


@pytest.fixture
def life(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Scene:
    return Scene(machine, make_node, make_pf, make_pod)
