"""Clusters and lives of a group in a short notation.

Nodes: ``a*2`` are nodes a-0 and a-1 in rack a, ``x.a`` is a node in zone x and rack a, ``?`` stands for no label, and
``n=a`` names node n-0. Behind that: ``:4+4`` VFs of each PF (2 without), ``@8`` cpus, ``#1`` pods, ``!`` cordoned.
Nodes by networks: ``n1 a b:4 c! ~d; n2 a`` are nodes with a PF of a VF, or of four, on each network; that of c is down,
and other pods hold that of d.
Members: ``3`` that want two VFs, ``3:8@1`` that want eight and a cpu.
A story has steps such as ``nodes a*2; job 3; lose m0 -> a*2``: what follows the arrow is where members are bound by
then, in the order of their numbers.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from random import Random
from typing import Any

import pytest

from mooring.annotations.inventory import Pf
from scheduler.cycle.instructions import Instruction
from scheduler.kube.objects import Pod
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.group_life import Life, binds, changed, told

_WORD = re.compile(
    r"(?:(?P<name>\w+)=)?(?P<path>[^*:@#!]*)(?:\*(?P<count>\d+))?(?::(?P<vfs>[\d+]+))?(?:@(?P<cpu>[\d.]+))?"
    r"(?:#(?P<pods>\d+))?(?P<cordoned>!?)"
)
_PF = re.compile(r"(?P<held>~?)(?P<network>\w+)(?::(?P<vfs>\d+))?(?P<down>!?)")
INDEX = "batch.kubernetes.io/job-completion-index"


def _words(text: str) -> Iterator[dict[str, str]]:
    for word in text.split():
        match = _WORD.fullmatch(word)
        assert match, f"{word!r} is no node"
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


def summary(instructions: Iterable[Instruction]) -> str:
    """Return where members are bound, such as ``a*2 b``, in the order of their numbers."""
    paths = [node.rpartition("-")[0] for node in nodes_of_members(instructions).values()]
    runs = [(path, len(list(run))) for path, run in groupby(paths)]
    return " ".join(path if count == 1 else f"{path}*{count}" for path, count in runs)


def message_of(instructions: Iterable[Instruction]) -> str:
    """Return what all waiting members are told."""
    (message,) = set(told(instructions).values())
    return message


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

    def put_node(self, name: str, *pfs: Pf, **fields: Any) -> None:
        """Show a node; its labels have its name as well."""
        fields["labels"] = {"name": name, "kubernetes.io/hostname": name} | fields.get("labels", {})
        self.show_node(name, *pfs, **fields)

    def build(self, text: str, keys: Sequence[str] = ("region", "zone", "rack")) -> None:
        """Show nodes; ``keys`` are their labels from wide to narrow, the last ones of which are used."""
        numbers = dict[str, int]()
        for word in _words(text):
            name = word["name"] or word["path"]
            values = word["path"].split(".")
            labels = {key: value for key, value in zip(keys[-len(values) :], values, strict=True) if value != "?"}
            pfs = [self.make_pf(k, int(vfs)) for k, vfs in enumerate((word["vfs"] or "2").split("+"))]
            allocatable = {"cpu": word["cpu"] or "8", "pods": word["pods"] or "110"}
            spec = {"unschedulable": bool(word["cordoned"])}
            for _ in range(int(word["count"] or 1)):
                number = numbers[name] = numbers.get(name, -1) + 1
                self.put_node(f"{name}-{number}", *pfs, labels=labels, allocatable=allocatable, spec=spec)

    def wire(self, text: str, **fields: Any) -> None:
        """Show nodes by the networks of their PFs, as in the text above."""
        for line in text.split("; "):
            name, *words = line.split()
            matches = [match for word in words if (match := _PF.fullmatch(word))]
            assert len(matches) == len(words), line
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

    def job(self, text: str, **group: Any) -> None:
        """Let members come, as in the text above."""
        words = [word for word in _words(text) for _ in range(int(word["path"]))]
        wants: list[Any] = [([{}] * int(word["vfs"] or 2), self.spec | cpus(word["cpu"] or 0)) for word in words]
        self._see_members(wants, group)

    def _see_members(self, wants: Sequence[tuple[object, dict[str, Any]]], group: dict[str, Any]) -> None:
        self.set_group(len(wants), group)
        first = len(self.wants)
        for rank, want in enumerate(wants, first):
            self.wants[f"m{rank}"] = *want, self.labels | ({INDEX: str(rank)} if self.ranks else {})
        comers = list(self.wants)[first:]
        for name in self.ranks.sample(comers, len(comers)) if self.ranks else comers:
            self._see_again(name)

    def _see_again(self, name: str) -> None:
        request, spec, labels = self.wants[name]
        self.see(self.member(name, self.group, request=request, spec=spec, metadata={"labels": labels}))

    def set_group(self, count: int, fields: dict[str, Any]) -> None:
        """Set what members say of their group, unless some have come already."""
        self.group = self.group or json.dumps({"name": "train", "min": count} | fields)

    def steps(self, count: int) -> list[Instruction]:
        return [one for _ in range(count) for one in self.machine.step(self.now) or ()]

    def play(self, story: str, **group: Any) -> list[Instruction]:
        """Play the steps of a story; return what is decided last."""
        decided = list[Instruction]()
        for step in story.split("; "):
            action, arrow, expected = step.partition("->")
            self._act(*action.strip().partition(" ")[::2], group)
            if arrow:
                decided = self.work(10.0)
                assert summary(decided) == expected.strip(), f"{step!r}: {summary(decided)!r}"
                self.bound(*binds(decided))
        return decided

    def _act(self, verb: str, text: str, group: dict[str, Any]) -> None:
        match verb:
            case "nodes":
                self.build(text)
            case "job":
                self.job(text, **group)
            case "pods":
                for number, word in enumerate(_words(text)):
                    spec = {} if word["path"] == "?" else {"nodeSelector": {"rack": word["path"]}}
                    self.see(self.make_pod(f"p{number}", [{}] * int(word["vfs"] or 2), spec=spec))
            case "remove":
                self.remove_node(text)
            case _:
                for name in text.split():
                    self._act_on(verb, name)

    def _act_on(self, verb: str, name: str) -> None:
        pod = self.running[name]
        match verb:
            case "again":
                self._see_again(name)
            case "lose":
                self.gone(pod)
            case "fail":
                self.see(changed(pod, status={"phase": "Failed"}))
            case "crash":
                self.remove_node(pod.spec.node_name or "")
                self.gone(pod)
            case _:
                raise ValueError(verb)

    def bound(self, *decisions: Any) -> list[Pod]:
        pods = super().bound(*decisions)
        self.running |= {pod.metadata.name: pod for pod in pods}
        return pods


@pytest.fixture
def life(machine: Machine, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Scene:
    return Scene(machine, make_node, make_pf, make_pod)
