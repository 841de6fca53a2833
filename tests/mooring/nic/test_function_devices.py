"""A function's own devices among others below it, in folders as Linux 6.12 shows them."""

from pathlib import Path

import pytest

from mooring.nic import rdma_netlink
from mooring.nic.function_devices import all_netdevs, own_index, own_netdevs, own_rdma_devices, own_verbs


def add_netdev(function: Path, name: str, ifindex: int, iflink: int | None = None) -> Path:
    folder = function / "net" / name
    folder.mkdir(parents=True)
    (folder / "ifindex").write_text(f"{ifindex}\n")
    if iflink is not None:
        (folder / "iflink").write_text(f"{iflink}\n")
    return folder


def add_rdma_device(function: Path, name: str, uverbs: str | None) -> None:
    (function / "infiniband" / name).mkdir(parents=True)
    if uverbs is not None:
        (function / "infiniband_verbs" / uverbs).mkdir(parents=True)
        (function / "infiniband_verbs" / uverbs / "ibdev").write_text(f"{name}\n")


def test_a_child_made_by_netlink_is_none_of_the_functions_own(tmp_path: Path) -> None:
    """It has no `parent`, the first name and the lower index: a pod's first free one."""
    add_netdev(tmp_path, "net1", 57, 57)
    add_netdev(tmp_path, "a8001", 3, 57)
    assert (own_netdevs(tmp_path), own_index(tmp_path)) == (["net1"], 57)
    assert all_netdevs(tmp_path) == (("a8001", 3), ("net1", 57))


def test_a_child_made_by_sysfs_is_none_either(tmp_path: Path) -> None:
    add_netdev(tmp_path, "ib0", 5)
    (add_netdev(tmp_path, "ib0.8001", 9) / "parent").write_text("ib0\n")
    assert (own_netdevs(tmp_path), own_index(tmp_path)) == (["ib0"], 5)


@pytest.mark.parametrize("unreadable", ["ifindex", "iflink"])
def test_a_netdev_whose_numbers_cannot_be_read_is_not_taken_for_a_child(tmp_path: Path, unreadable: str) -> None:
    """It is renamed or moved at this moment. A PF without a netdev would have its VFs' settings written nowhere."""
    (add_netdev(tmp_path, "eth0", 5, 5) / unreadable).unlink()
    assert own_netdevs(tmp_path) == ["eth0"]


def test_a_function_of_which_only_a_child_is_here_has_no_netdev(tmp_path: Path) -> None:
    """Its own one is in another network namespace."""
    add_netdev(tmp_path, "ib0.8001", 3, 57)
    assert (own_netdevs(tmp_path), own_index(tmp_path)) == ([], None)


def test_a_device_without_uverbs_is_a_sub_device_of_one_that_has_them(tmp_path: Path) -> None:
    """mlx5's SMI device of a port with several planes; its name is the administrator's."""
    add_rdma_device(tmp_path, "mlx5_2", "uverbs2")
    add_rdma_device(tmp_path, "a_smi", None)
    assert own_rdma_devices(tmp_path) == ["mlx5_2"]
    assert own_verbs(tmp_path) == ["uverbs2"]


def test_what_the_kernel_names_a_parent_of_is_a_sub_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not it has a uverbs device."""
    monkeypatch.setattr(rdma_netlink, "sub_devices", lambda: frozenset({"a_sub"}))
    add_rdma_device(tmp_path, "mlx5_2", "uverbs10")
    add_rdma_device(tmp_path, "a_sub", "uverbs9")
    assert (own_rdma_devices(tmp_path), own_verbs(tmp_path)) == (["mlx5_2"], ["uverbs10"])


def test_devices_of_a_kernel_that_tells_no_parents_are_all_returned(tmp_path: Path) -> None:
    """The first is the one with the lowest number, not the first by spelling."""
    add_rdma_device(tmp_path, "mlx5_10", "uverbs10")
    add_rdma_device(tmp_path, "mlx5_9", "uverbs9")
    assert (own_rdma_devices(tmp_path), own_verbs(tmp_path)) == (["mlx5_9", "mlx5_10"], ["uverbs9", "uverbs10"])


def test_sub_devices_are_read_from_the_kernels_list() -> None:
    """RDMA_NLDEV_ATTR_PARENT_NAME is 100, and only sub-devices have it (fill_nldev_handle's caller, Linux 6.12)."""
    parent = ((rdma_netlink.DEV_INDEX, bytes(4)), (rdma_netlink.DEV_NAME, b"mlx5_0\0"), (99, b"\0"))
    child = ((rdma_netlink.DEV_NAME, b"smi1\0"), (99, b"\1"), (rdma_netlink.PARENT_NAME, b"mlx5_0\0"))
    assert rdma_netlink.sub_devices_in([parent, child]) == frozenset({"smi1"})
