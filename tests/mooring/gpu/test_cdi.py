"""CDI specifications: which device holds exactly which GPU."""

import json
from typing import Any

import pytest

from mooring.gpu.cdi import CdiDevice, CdiError, devices_of_gpus, read_cdi

GPUS = {"0000:1b:00.0": ("nvidia0",), "0000:43:00.0": ("nvidia1", "dri/renderD129")}


def _spec(*devices: dict[str, Any], **more: Any) -> str:
    return json.dumps({"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": devices, "hooks": []} | more)


def _device(name: str, *nodes: str | dict[str, str]) -> dict[str, Any]:
    listed = [{"path": node} if isinstance(node, str) else node for node in nodes]
    return {"name": name, "containerEdits": {"deviceNodes": listed, "mounts": [{"hostPath": "/x"}]}}


def _held(text: str) -> dict[str, list[str]]:
    found = devices_of_gpus(read_cdi(text, "/etc/cdi/x.yaml"), GPUS)
    return {pci: [device.qualified_name for device in devices] for pci, devices in found.items()}


def test_a_device_holds_a_gpu_if_it_brings_that_ones_nodes_and_no_other_ones() -> None:
    """By index, by UUID, with nodes that all share; `all` holds none of two."""
    text = _spec(
        _device("0", "/dev/nvidia0", "/dev/nvidiactl"),
        _device("GPU-1", "/dev/nvidia1", "/dev/dri/renderD129"),
        _device("all", "/dev/nvidia0", "/dev/nvidia1"),
    )
    assert _held(text) == {"0000:1b:00.0": ["nvidia.com/gpu=0"], "0000:43:00.0": ["nvidia.com/gpu=GPU-1"]}


def test_the_host_decides_which_node_it_is() -> None:
    """Its path there counts, below whichever /dev the driver has; the name in the container may be another."""
    inside = {"path": "/dev/nvidia0", "hostPath": "/run/nvidia/driver/dev/nvidia1"}
    assert _held(_spec(_device("odd", inside))) == {"0000:1b:00.0": [], "0000:43:00.0": ["nvidia.com/gpu=odd"]}


def test_edits_of_the_whole_specification_come_with_each_device() -> None:
    """A GPU among them is in every container."""
    shared = {"containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}
    assert _held(_spec(_device("1", "/dev/nvidia1"), **shared)) == {"0000:1b:00.0": [], "0000:43:00.0": []}


def test_a_device_without_the_node_that_computes_is_not_the_gpu() -> None:
    """The render node of a GPU of NVIDIA's alone gives no CUDA."""
    assert _held(_spec(_device("dri", "/dev/dri/renderD129"))) == {"0000:1b:00.0": [], "0000:43:00.0": []}


def test_a_specification_with_two_devices_of_one_name_is_none() -> None:
    """Container runtimes drop the whole file: its other devices do not exist for them either."""
    twice = _spec(_device("0", "/dev/nvidia0"), _device("GPU-1", "/dev/nvidia0"), _device("GPU-1", "/dev/nvidia1"))
    with pytest.raises(CdiError, match=r"devices\[2\]\.name: 'GPU-1' appears twice"):
        read_cdi(twice, "f")


def test_edits_that_are_null_are_none() -> None:
    """YAML without a value, which container runtimes take."""
    nothing = {"name": "x", "containerEdits": None}
    without_nodes = {"name": "y", "containerEdits": {"deviceNodes": None}}
    found = read_cdi(_spec(nothing, without_nodes, containerEdits=None), "f")
    assert [device.nodes for device in found] == [frozenset(), frozenset()]


def test_a_part_of_a_gpu_is_not_the_gpu() -> None:
    """A MIG slice brings the GPU's node and those of its instances."""
    slice_of_0 = _device("0:0", "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22")
    assert _held(_spec(slice_of_0)) == {"0000:1b:00.0": [], "0000:43:00.0": []}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("[]", "a list of 0 is not an object"),
        (_spec(kind="gpu"), "kind: 'gpu' is not a kind such as 'vendor.com/gpu'"),
        ('{"kind":"a.com/b"}', "field 'devices' is missing"),
        (_spec({"containerEdits": {}}), "devices[0]: field 'name' is missing"),
        (_spec(_device("a b")), "devices[0].name: 'a b' is not a CDI device's name"),
        (_spec({"name": "0", "containerEdits": {"deviceNodes": [{}]}}), "deviceNodes[0]: field 'path' is missing"),
    ],
)
def test_what_is_no_specification_is_refused_by_its_place(text: str, rule: str) -> None:
    """With the file's path."""
    with pytest.raises(CdiError) as refused:
        read_cdi(text, "/etc/cdi/x.yaml")
    assert str(refused.value).startswith("CDI specification '/etc/cdi/x.yaml'")
    assert rule in str(refused.value)


def test_a_device_without_edits_brings_nothing() -> None:
    """The specification allows it for edits of other kinds."""
    assert read_cdi(_spec({"name": "x"}), "f") == (CdiDevice("nvidia.com/gpu", "x", frozenset()),)
