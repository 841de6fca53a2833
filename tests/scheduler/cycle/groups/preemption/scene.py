"""A cluster in one line, and the group or pod that comes to it: for tables of who leaves.

``"n1(a+b^5) n2:4(c:3~7) n3/r1"``: a and b run on n1, b with priority 5. n2 has 4 VFs, of which c takes 3 since minute
7. n3, in rack r1, is free. By default a pod takes 2 VFs, and a node is in rack r0 and has as many as its pods take, at
least 2. A pod's family is its name without digits. Words and members are those of `tests.scheduler.cycle.groups.scene`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from _pytest.mark.structures import ParameterSet

from mooring.kube.events import Changed, Identity
from scheduler.cycle.instructions import Instruction
from scheduler.kube.objects import Pod
from scheduler.kube.selecting_objects import PodDisruptionBudget
from tests.scheduler.cycle.groups.scene import amounts
from tests.scheduler.group_life import Life, claiming

Json = dict[str, Any]
POLICY: Json = {"schedulingPolicy": {"gang": {"minCount": 2}}}
WHOLE: Json = POLICY | {"disruptionMode": "PodGroup"}
GONE: Json = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@dataclass(frozen=True)
class Scene:
    """Nodes with pods, and ``members`` of a group; if ``pod`` is not 0, a pod of so many VFs instead.

    ``groups`` are annotations, or only their min, by family or pod, and ``pod_groups`` specs of PodGroups by family.
    ``specs`` are fields by pod, ``budgets`` the allowed disruptions by family or pod. The group that comes has
    ``group`` in its annotation, and its members have ``label`` with their rank.
    """

    nodes: str
    members: str = "2"
    pod: int = 0
    priority: int = 10
    group: Json = field(default_factory=dict)
    spec: Json = field(default_factory=dict)
    label: str = ""
    groups: Mapping[str, Json | int] = field(default_factory=dict)
    pod_groups: Mapping[str, Json] = field(default_factory=dict)
    specs: Mapping[str, Json] = field(default_factory=dict)
    budgets: Mapping[str, int] = field(default_factory=dict)

    def show(self, life: Life) -> dict[str, Pod]:
        """Show the nodes and their pods, and return these by name."""
        for name, spec in self.pod_groups.items():
            life.pod_group(name, **spec)
        pods = dict[str, Pod]()
        for text in self.nodes.split():
            pods |= self._show_node(life, text)
        for name, allowed in self.budgets.items():
            show_budget(life, name, allowed)
        return pods

    def _show_node(self, life: Life, text: str) -> dict[str, Pod]:
        place, _, running = text.removesuffix(")").partition("(")
        (word,) = amounts([place])
        node, rack = word["name"] or word["path"], word["path"] if word["name"] else "r0"
        pods, used = dict[str, Pod](), 0
        for pod in amounts(running.split("+") if running else ()):
            name, size, priority = pod["path"], int(pod["vfs"] or 2), int(pod["priority"] or 0)
            start = f"2026-01-01T00:{int(pod['minute'] or 0):02}:00Z"
            status = {"startTime": start, "phase": "Running"} if pod["minute"] else {}
            fields = self._fields_of(name) | {"request": [Json()] * size, "status": status}
            fields["spec"] = {"priority": priority, "nodeName": node} | fields["spec"]
            pods[name] = claiming(life.member(name, **fields), *range(used, used + size))
            used += size
        life.nodes(node, vfs=int(word["vfs"] or max(used, 2)), labels={"rack": rack, "kubernetes.io/hostname": node})
        life.see(*pods.values())
        return pods

    def _fields_of(self, name: str) -> Json:
        family = name.rstrip("0123456789")
        group, spec = self.groups.get(name, self.groups.get(family)), self.specs.get(name, {})
        document = {"name": family} | ({"min": group} if isinstance(group, int) else group or {})
        if family in self.pod_groups:
            spec = spec | {"schedulingGroup": {"podGroupName": family}}
        metadata = {"labels": {"app": family, "pod": name}}
        return {"group": json.dumps(document) if group else "", "spec": spec, "metadata": metadata}

    def come(self, life: Life) -> list[Pod]:
        """Let the group or the pod come."""
        sizes = [int(word["vfs"] or 2) for word in amounts(self.members.split()) for _ in range(int(word["path"]))]
        group, spec = {"name": "train", "min": len(sizes)} | self.group, {"priority": self.priority} | self.spec
        pods = list[Pod]()
        for rank, vfs in enumerate([self.pod] if self.pod else sizes):
            labels = {"app": "train"} | ({self.label: str(rank)} if self.label else {})
            fields = {"request": [Json()] * vfs, "spec": spec, "metadata": {"labels": labels}}
            pods.append(life.member(f"m{rank}", "" if self.pod else json.dumps(group), **fields))
        life.see(*pods)
        return pods

    def play(self, life: Life) -> list[Instruction]:
        """Show all, and return what is decided."""
        self.show(life)
        self.come(life)
        return life.work(15.0)


def row(name: str, text: str, *values: object, **fields: Any) -> ParameterSet:
    """Return a row of a table: ``text`` has the nodes, and after ``>`` the victims' names as a regular expression."""
    nodes, _, expected = text.partition(">")
    return pytest.param(Scene(nodes, **fields), expected.strip(), *values, id=name)


def show_budget(life: Life, name: str, allowed: int = 0) -> None:
    """Show a budget of a family's pods, or of one pod."""
    document = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"pod" if name[-1].isdigit() else "app": name}}},
        "status": {"disruptionsAllowed": allowed},
    }
    budget = msgspec.convert(document, PodDisruptionBudget)
    life.machine.handle(PodDisruptionBudget, Changed(Identity(name, "default"), budget), life.now)
