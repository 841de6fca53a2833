"""Sysfs trees of real hosts as data (``layouts/*.yaml``), rebuilt in a temporary folder.

Each PF of a layout names its folder's attributes, its netdevs and RDMA devices, and its VFs by a template in which
``{}`` is the VF's index; ``odd`` replaces parts of the template for single VFs (null: that part is not there). A
function that names no class is an Ethernet controller.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml

from mooring.nic.pci import vf_address

LAYOUTS = sorted((Path(__file__).parent / "layouts").glob("*.yaml"))
Tree = Mapping[str, Any]
# PCI_CLASS_NETWORK_ETHERNET in include/linux/pci_ids.h, with the programming interface below it.
_ETHERNET = "0x020000"


def load_layout(name: str) -> Tree:
    """Return a layout by its file's stem."""
    layout: Tree = yaml.safe_load((Path(__file__).parent / "layouts" / f"{name}.yaml").read_text())
    return layout


def build_tree(root: Path, layout: Tree) -> Path:
    """Build a layout's tree at ``root`` and return it; links are relative, as in sysfs."""
    (root / "bus/pci/devices").mkdir(parents=True, exist_ok=True)
    for pf in layout["pfs"]:
        folder = _function(root, pf["pci"], pf)
        vfs = pf.get("vfs")
        for index in range(vfs["count"] if vfs else 0):
            address = vf_address(vfs["first"], vfs.get("stride", 1), index)
            content = vfs | vfs.get("odd", {}).get(index, {})
            vf = _function(root, address, {**content, "bridges": pf.get("bridges", [])}, index)
            _link(folder / f"virtfn{index}", vf)
            _link(vf / "physfn", folder)
    return root


def _function(root: Path, address: str, content: Tree, index: int = 0) -> Path:
    bridges = content.get("bridges", [])
    folder = root.joinpath("devices", f"pci{(bridges or [address])[0][:7]}", *bridges, address)
    _write(folder, {"class": _ETHERNET} | content.get("attributes", {}), index)
    _link(root / "bus/pci/devices" / address, folder)
    if driver := content.get("driver"):
        (root / "bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        _link(folder / "driver", root / "bus/pci/drivers" / driver)
    for kind in ("net", "infiniband", "infiniband_verbs"):
        for name, attributes in (content.get(kind) or {}).items():
            _write(folder / kind / name.format(index), attributes or {}, index)
    return folder


def _write(folder: Path, attributes: Tree, index: int) -> None:
    """Write attributes; a mapping is a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in attributes.items():
        if isinstance(value, Mapping):
            _write(folder / name, value, index)
        else:
            (folder / name).write_text(f"{value}\n".format(index))


def _link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent))


@pytest.fixture(autouse=True)
def _own_log() -> Iterator[None]:
    """Forget where a program that a test ran in this process logs to: that test's stderr, closed by now."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def tree(tmp_path: Path) -> Callable[[Tree], Path]:
    """Build a layout's tree in a temporary folder."""
    return lambda layout: build_tree(tmp_path / "sys", layout)


@pytest.fixture(params=LAYOUTS, ids=lambda path: path.stem)
def layout(request: pytest.FixtureRequest) -> Tree:
    """Each layout in turn."""
    return load_layout(request.param.stem)


@pytest.fixture
def named_layout() -> Callable[[str], Tree]:
    """Load a layout by its name."""
    return load_layout
