"""The registry of plugins holds what the cycle relies on.

Plugins whose results are kept by a pod's shape read only fields in which pods of one shape are equal.
"""

import sys
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mooring.gpu.inventory import KEY, Gpu, GpuInventory, dump_gpu_inventory
from scheduler import plugins
from scheduler.constraints.kinds import Kinds
from scheduler.kube.objects import RuntimeClass
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.gpus import gpu_kind
from scheduler.placement.steps import Steps
from scheduler.plugins.interface import (
    ClusterFilterPlugin,
    DryRunPlugin,
    ExtensionPoint,
    ScorePlugin,
    UsageFilterPlugin,
    UsageScorePlugin,
)
from scheduler.plugins.registry import NODE_FILTERS, NODE_SCORES, PLUGINS, RESERVES, USAGE_FILTERS, USAGE_SCORES, Plugin
from scheduler.state.machine import Machine
from tests.scheduler.conftest import Json, MakeNode, MakePf, MakePod
from tests.scheduler.group_life import changed_event, pod_info_of, show_object

KINDS = Kinds([gpu_kind()])
# The fields of `PodInfo` whose own fields are recorded.
OUTER = ("pod", "pod.spec", "pod.metadata", "pod.spec.affinity")
GPU = {"limits": {"mooring.dev/gpu": "1"}, "requests": {"mooring.dev/gpu": "1", "cpu": "1"}}
PLAIN: Json = {
    "request": [{}],
    "spec": {"affinity": {}, "containers": [{"name": "c", "resources": GPU}, {"name": "d"}]},
}


def _containers(c_cpu: str = "1", d_cpu: str = "0", **fields: Any) -> Json:
    c = {"name": "c", "resources": {**GPU, "requests": {**GPU["requests"], "cpu": c_cpu}}}
    d = {"name": "d", "resources": {"requests": {"cpu": d_cpu} if d_cpu != "0" else {}}}
    return {"spec": {"containers": [c | fields, d]}}


def _zone() -> Json:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


# By each field that these plugins read, a pod that differs from `PLAIN` in it and, as far as possible, in no other.
CHANGES: dict[str, Json] = {
    "resources": _containers(resources={part: {**amounts, "example.com/x": "1"} for part, amounts in GPU.items()}),
    # What a container without a request counts in scores.
    "scored": _containers("500m", "500m"),
    "ports": _containers(ports=[{"hostPort": 80, "containerPort": 80}]),
    "interfaces": {"request": [{}, {}]},
    "request": {"request": [{"min_tx_rate": 1000}]},
    "wishes": {"annotations": {"mooring.dev/request.gpu": '{"vfs":"switch"}'}},
    "pod.spec.images": _containers(image="a"),
    "pod.spec.node_name": {"spec": {"nodeName": "n1"}},
    "pod.spec.node_selector": {"spec": {"nodeSelector": {"zone": "a"}}},
    "pod.spec.affinity.node_affinity": {"spec": {"affinity": _zone()}},
    "pod.spec.tolerations": {"spec": {"tolerations": [{"operator": "Exists"}]}},
    "pod.spec.runtime_class_name": {"spec": {"runtimeClassName": "virtual"}},
}
# Plugins for pods without VFs or GPUs read other fields.
WITHOUT_DEVICES: Json = {"request": None, "spec": {"containers": [{"name": "c"}], "runtimeClassName": "virtual"}}


class _Recorder:
    """Stands for an object, and records which of its fields are read."""

    def __init__(self, subject: object, path: str, paths: set[str]) -> None:
        self._subject, self._path, self._paths = subject, path, paths

    def __getattr__(self, name: str) -> Any:
        path, value = f"{self._path}.{name}".lstrip("."), getattr(self._subject, name)
        if path in OUTER:
            return value and _Recorder(value, path, self._paths)
        self._paths.add(path)
        return value


def _read(fields: Json, make_pod: MakePod) -> PodInfo:
    return pod_info_of(make_pod(**PLAIN | fields | {"spec": PLAIN["spec"] | fields.get("spec", {})}), KINDS)


def _evaluate(pod_info: Any, machine: Machine) -> None:
    """Let each plugin whose result is kept evaluate the machine's only node."""
    nodes, rows = machine.cache.nodes, np.array([0])
    calls: list[tuple[Sequence[ExtensionPoint[Any]], Callable[[Any], object]]] = [
        (NODE_FILTERS, lambda judge: judge(rows, Steps())),
        (NODE_SCORES, lambda score: score(rows)),
        (RESERVES, lambda reserve: reserve(0, Steps())),
        (USAGE_FILTERS, lambda usage: usage.judge(nodes.view(rows))),
        (USAGE_SCORES, lambda score: score(nodes.view(rows))),
    ]
    for points, call in calls:
        for plugin in points:
            prepared: Any = plugin.pre_filter(pod_info, nodes)
            if prepared is not None:
                call(prepared)


@pytest.fixture
def cluster(make_node: MakeNode, make_pf: MakePf) -> Machine:
    machine = Machine("mooring", kinds=KINDS)
    gpu = Gpu("0000:10:00.0", "GPU-0", "nvidia", "H100", 80000, 0, ("0000:10:00.0",), 0)
    gpus = {KEY: dump_gpu_inventory(GpuInventory((gpu,), ()))}
    machine.nodes(changed_event(make_node(pfs=(make_pf(),), annotations=gpus, labels={"zone": "a"})), 0.0)
    show_object(machine, RuntimeClass, {"metadata": {"name": "virtual", "uid": "virtual"}, "handler": "kata"})
    return machine


def test_these_are_all_fields_that_they_read(cluster: Machine, make_pod: MakePod) -> None:
    paths = set[str]()
    for fields in ({}, WITHOUT_DEVICES, *CHANGES.values()):
        _evaluate(_Recorder(_read(fields, make_pod), "", paths), cluster)
    assert paths == set(CHANGES)


@pytest.mark.parametrize("path", CHANGES)
def test_pods_that_differ_in_such_a_field_have_different_shapes(path: str, make_pod: MakePod) -> None:
    """Otherwise the second pod would get the first one's nodes."""
    plain, other = _read({}, make_pod), _read(CHANGES[path], make_pod)
    assert attrgetter(path)(plain) != attrgetter(path)(other)
    assert plain.shape != other.shape


def test_every_extension_point_that_a_file_has_is_in_its_line() -> None:
    """What a line leaves out would be code that looks done and is never asked."""
    (folder,) = plugins.__path__
    files = [path.relative_to(folder).with_suffix("") for path in Path(folder).rglob("[!_]*.py")]
    modules = [sys.modules.get(".".join(("scheduler.plugins", *file.parts))) for file in files]
    assert None not in modules
    defined = [one for module in modules for one in vars(module).values() if isinstance(one, ExtensionPoint)]
    registered = [point for plugin in PLUGINS for point in plugin.points]
    assert [one for one in defined if not any(one is point for point in registered)] == []


@pytest.mark.parametrize("name", ["FLTER", "dry_run", "__doc__"])
def test_a_name_that_is_no_extension_point_is_an_error(name: str) -> None:
    """Its author learns file and name; otherwise a plugin could be without a filter that looks done."""
    message = rf"^scheduler\.plugins\.node_ports: {name} is (?s:.+), not an extension point$"
    with pytest.raises(AssertionError, match=message):
        Plugin("node_ports", "FILTER", name)


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_a_plugin_has_one_name_and_all_that_it_needs(plugin: Plugin) -> None:
    """A score without a weight would count for nothing; without a dry run, pods would be preempted in vain."""
    assert [other.name for other in PLUGINS].count(plugin.name) == 1
    assert {point.name for point in plugin.points} == {plugin.name}
    scores = any(isinstance(point, ScorePlugin | UsageScorePlugin | ClusterFilterPlugin) for point in plugin.points)
    assert scores == (plugin.weight > 0)
    judges_usage = any(isinstance(point, UsageFilterPlugin) for point in plugin.points)
    assert judges_usage == any(isinstance(point, DryRunPlugin) for point in plugin.points)
