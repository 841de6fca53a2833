"""The annotation of a node's GPUs: what is written is read again, and what breaks a rule is refused by its place."""

import json
from typing import Any

import pytest

from mooring.errors import AnnotationError
from mooring.gpu.inventory import (
    MOST_GPUS,
    MOST_INVENTORY_CHARACTERS,
    Gpu,
    GpuInventory,
    GpuOut,
    common_bridges,
    dump_gpu_inventory,
    read_gpu_inventory,
)

H100: dict[str, Any] = {
    "pci": "0000:1b:00.0",
    "uuid": "GPU-257d8671-d0e6-d1a7-dea9-952249a668fa",
    "vendor": "nvidia",
    "model": "NVIDIA H100 80GB HBM3",
    "memory_mb": 81559,
    "numa": 0,
    "pcie": ["0000:15:01.0", "0000:16:00.0"],
    "link": 0,
}
OUT = {"pci": "0000:43:00.0", "why": "MIG is on"}


def _text(*gpus: dict[str, Any], out: list[dict[str, Any]] | None = None) -> str:
    return json.dumps({"v": 1, "gpus": gpus} | ({} if out is None else {"out": out}))


def test_the_annotation_is_read_as_it_was_written() -> None:
    """With all fields, with the required ones only, and without GPUs."""
    full = Gpu("0000:1b:00.0", H100["uuid"], "nvidia", H100["model"], 81559, 0, ("0000:15:01.0", "0000:16:00.0"), 0)
    bare = Gpu("0000:52:00.0", "GPU-b000000000000001", "amd")
    inventory = GpuInventory((full, bare), (GpuOut("0000:43:00.0", "MIG is on"),))
    assert read_gpu_inventory(dump_gpu_inventory(inventory)) == inventory
    assert read_gpu_inventory(_text(H100, out=[OUT])) == GpuInventory((full,), inventory.out)
    assert dump_gpu_inventory(GpuInventory()) == '{"gpus":[],"v":1}'
    assert read_gpu_inventory('{"gpus":[],"v":1}') == GpuInventory()


def test_unknown_fields_are_ignored() -> None:
    """A newer advertiser may say more of a GPU, of one that is out, and of the node."""
    newer = json.loads(_text(H100 | {"new": 1}, out=[OUT | {"new": 1}])) | {"new": 1}
    assert read_gpu_inventory(json.dumps(newer)) == read_gpu_inventory(_text(H100, out=[OUT]))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("{", ": not valid JSON"),
        ('{"gpus":[]}', "field 'v' is missing"),
        ('{"v":1}', "field 'gpus' is missing"),
        (_text(H100 | {"pci": "1b:00.0"}), ".gpus[0].pci: '1b:00.0' is not a PCI address"),
        (_text(H100 | {"uuid": "GPU-?"}), ".gpus[0].uuid: 'GPU-?' is not a GPU's UUID"),
        (_text(H100 | {"vendor": "intel"}), ".gpus[0].vendor: 'intel' is not one of nvidia, amd"),
        (_text(H100 | {"memory_mb": -1}), ".gpus[0].memory_mb: -1 is not an integer from 0 to"),
        (_text(H100 | {"model": "x" * 129}), ".gpus[0].model: "),
        (_text(H100 | {"link": True}), ".gpus[0].link: true is not an integer"),
        (_text(H100, H100 | {"uuid": "GPU-1"}), "PCI address '0000:1b:00.0' appears twice"),
        (_text(H100, H100 | {"pci": "0000:1c:00.0"}), "UUID 'GPU-257d8671-d0e6-d1a7-dea9-952249a668fa' appears twice"),
        (_text(H100, out=[OUT | {"pci": "0000:1b:00.0"}]), "PCI address '0000:1b:00.0' appears twice"),
        (_text(out=[{"pci": "0000:1b:00.0"}]), ".out[0]: field 'why' is missing"),
        (_text(*[H100] * (MOST_GPUS + 1)), f"has {MOST_GPUS + 1} entries, more than {MOST_GPUS}"),
        (" " * (MOST_INVENTORY_CHARACTERS + 1), f"longer than {MOST_INVENTORY_CHARACTERS} characters"),
    ],
)
def test_what_breaks_a_rule_is_refused_by_its_place(text: str, rule: str) -> None:
    """The message names the annotation, the place and the rule."""
    with pytest.raises(AnnotationError) as refused:
        read_gpu_inventory(text)
    assert str(refused.value).startswith("annotation 'mooring.dev/inventory.gpu'")
    assert rule in str(refused.value)


@pytest.mark.parametrize(
    ("one", "other", "depth"),
    [("", "", 0), ("a", "", 0), ("a", "b", 0), ("ab", "ab", 2), ("abc", "abd", 2), ("ab", "abc", 2), ("xb", "yb", 0)],
)
def test_common_bridges_are_counted_from_the_root(one: str, other: str, depth: int) -> None:
    """Equal bridges after two that differ are none in common."""
    assert common_bridges(one, other) == common_bridges(other, one) == depth
