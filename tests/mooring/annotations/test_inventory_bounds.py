"""How much one node may say of itself: bounds that hold wherever an inventory is read."""

import json
from typing import Any

import pytest

from mooring.annotations.inventory import MOST_INVENTORY_CHARACTERS, MOST_VFS, read_inventory
from mooring.errors import AnnotationError


def _pf(index: int = 0, vfs: str = "0-3", **fields: Any) -> dict[str, Any]:
    pci = f"{index:04x}:04:00"
    return {
        "name": f"pf{index}",
        "pci": f"{pci}.0",
        "link": "ethernet",
        "network": "rail0",
        "mbps": 100_000,
        "offer_mbps": 90_000,
        "up": True,
        "vfs": vfs,
        "vf0": f"{pci}.1",
    } | fields


def _inventory(*pfs: dict[str, Any], **fields: Any) -> str:
    return json.dumps({"v": 1, "boot": "b", "pfs": pfs} | fields)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (_inventory(_pf(vfs="0-4096")), "pfs[0].vfs: '0-4096' contains indexes above 4095"),
        (_inventory(_pf(out=[{"vfs": "65534", "why": "x"}])), "pfs[0].out[0].vfs: '65534' contains indexes above 4095"),
        (
            _inventory(_pf(out=[{"vfs": "0-2", "why": "x"}, {"vfs": "2", "why": "y"}])),
            "pfs[0].out[1].vfs: VF 2 is in an earlier entry, too",
        ),
        (
            _inventory(*(_pf(index, vfs="0-2047") for index in range(3))),
            f"pfs: 6144 VFs exceed the limit of {MOST_VFS} on one node",
        ),
        (
            _inventory(*(_pf(index, vfs="0-3", out=[{"vfs": "0-2047", "why": "x"}]) for index in range(3))),
            f"pfs: 6144 VFs exceed the limit of {MOST_VFS} on one node",
        ),
        (_inventory(filler="x" * MOST_INVENTORY_CHARACTERS), f"longer than {MOST_INVENTORY_CHARACTERS} characters"),
    ],
    ids=["index", "index that is out", "twice out", "VFs of a node", "VFs of a node that are out", "size"],
)
def test_an_inventory_beyond_its_bounds_is_refused_in_words(text: str, says: str) -> None:
    """Else one node could cost the scheduler seconds at each of its inventory's versions."""
    with pytest.raises(AnnotationError) as refused:
        read_inventory(text)
    assert says in str(refused.value)


def test_an_inventory_at_its_bounds_is_read() -> None:
    """A node may have all its VFs on one PF, each out for a reason of its own."""
    outs = [{"vfs": str(index), "why": "x"} for index in range(1000)]
    read = read_inventory(_inventory(_pf(vfs=f"0-{MOST_VFS - 1}", out=outs)))
    assert len(read.pfs[0].usable) == MOST_VFS - 1000
