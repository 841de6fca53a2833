"""The device nodes of a VF are those that sysfs shows at this moment, or there are none."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from cri_shim.devices.device_nodes import DeviceError, Roots, resolve
from cri_shim.plan.inject import VfDevices


@pytest.fixture
def roots(host: Path) -> Roots:
    return Roots(host / "sys", host / "dev")


def test_a_vf_has_its_uverbs_and_the_connection_manager(roots: Roots, make: Any) -> None:
    """The host's paths are used, which need not be in /dev."""
    nodes = tuple(str(roots.dev / "infiniband" / name) for name in ("uverbs3", "rdma_cm"))
    assert resolve(make.first, roots) == VfDevices("mlx5_3", "uverbs3", nodes)


def test_a_device_bound_again_is_found_under_its_new_number(roots: Roots, make: Any, host: Path) -> None:
    """Nothing is remembered from one container to the next."""
    resolve(make.first, roots)
    verbs = host / f"sys/bus/pci/devices/{make.first}/infiniband_verbs"
    (verbs / "uverbs3").rename(verbs / "uverbs9")
    (host / "dev/infiniband/uverbs9").touch()
    assert resolve(make.first, roots).uverbs == "uverbs9"


@pytest.mark.parametrize("name", [b"a b", b"mlx5\xff"])
def test_a_renamed_device_is_given_all_the_same(name: bytes, roots: Roots, make: Any, host: Path) -> None:
    """In shared mode any pod with NET_ADMIN can rename it, and must not keep another's container from its VF."""
    (host / f"sys/bus/pci/devices/{make.first}/infiniband_verbs/uverbs3/ibdev").write_bytes(name + b"\n")
    found = resolve(make.first, roots)
    assert (found.rdma, found.uverbs, len(found.nodes)) == (None, "uverbs3", 2)


@pytest.mark.parametrize(
    ("gone", "reason"),
    [
        ("sys/bus/pci/devices/0000:04:00.5", "0 devices in"),
        ("sys/bus/pci/devices/0000:04:00.5/infiniband_verbs/uverbs3/ibdev", "ibdev: No such file"),
        ("dev/infiniband/uverbs3", "dev/infiniband/uverbs3: No such file"),
        ("dev/infiniband/rdma_cm", "load the kernel module rdma_ucm"),
    ],
)
def test_what_is_missing_is_named(gone: str, reason: str, roots: Roots, make: Any, host: Path) -> None:
    """A netdev without its devices is not the VF that was assigned: the container is refused."""
    path = host / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(DeviceError, match=reason):
        resolve(make.first, roots)


def test_two_devices_below_one_vf_are_refused(roots: Roots, make: Any, host: Path) -> None:
    """The annotation does not state which of them is meant."""
    verbs = host / f"sys/bus/pci/devices/{make.first}/infiniband_verbs"
    shutil.copytree(verbs / "uverbs3", verbs / "uverbs8")
    with pytest.raises(DeviceError, match="2 devices"):
        resolve(make.first, roots)


@pytest.mark.root
def test_a_node_with_another_number_is_refused(roots: Roots, make: Any) -> None:
    """A stale node would open another pod's VF."""
    node = roots.dev / "infiniband/uverbs3"
    node.unlink()
    os.mknod(node, 0o20600, os.makedev(231, 195))
    assert resolve(make.first, roots).uverbs == "uverbs3"
    node.unlink()
    os.mknod(node, 0o20600, os.makedev(231, 200))
    with pytest.raises(DeviceError, match="is 231:200, but the device uverbs3 is 231:195"):
        resolve(make.first, roots)


def test_management_devices_come_only_where_the_config_says_so(roots: Roots, make: Any, host: Path) -> None:
    """umad and issm can manage a fabric."""
    for name, number in (("umad3", "231:3"), ("issm3", "231:67")):
        folder = host / f"sys/bus/pci/devices/{make.first}/infiniband_mad/{name}"
        folder.mkdir(parents=True)
        (folder / "dev").write_text(number)
        (host / "dev/infiniband" / name).touch()
    assert [Path(node).name for node in resolve(make.first, roots).nodes] == ["uverbs3", "rdma_cm"]
    managing = Roots(roots.sysfs, roots.dev, management=True)
    assert [Path(node).name for node in resolve(make.first, managing).nodes] == ["uverbs3", "issm3", "umad3", "rdma_cm"]


def test_management_devices_of_a_sub_device_are_not_given(roots: Roots, make: Any, host: Path) -> None:
    """mlx5's SMI device lies below the same function, and its umad manages the planes of the port."""
    for name, number, device in (("umad3", "231:3", "mlx5_3"), ("umad4", "231:4", "smi1")):
        folder = host / f"sys/bus/pci/devices/{make.first}/infiniband_mad/{name}"
        folder.mkdir(parents=True)
        (folder / "dev").write_text(number)
        (folder / "ibdev").write_text(f"{device}\n")
        (host / "dev/infiniband" / name).touch()
    managing = Roots(roots.sysfs, roots.dev, management=True)
    assert [Path(node).name for node in resolve(make.first, managing).nodes] == ["uverbs3", "umad3", "rdma_cm"]
