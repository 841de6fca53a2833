"""The simulated hosts' sysfs tree, read back as any program reads /sys: by following its links."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from devcluster.hosts import sysfs
from devcluster.hosts.netdevs import Netdev, show
from devcluster.hosts.nic import Function, Host, describe_host, dump_host, load_host
from mooring.nic.pci import vf_address


def _tree(root: Path, host: Host) -> Path:
    sysfs.build(root, host)
    return root


def _text(path: Path) -> str:
    return path.read_text().strip()


def _vf(host: Host, pf: int, vf: int) -> Function:
    return next(each for each in host.functions() if each.pf == host.pfs[pf] and each.vf == vf)


def test_a_vf_is_found_from_its_pf_and_its_pf_from_the_vf(tmp_path: Path) -> None:
    """virtfnN and physfn lead to each other, and bus/pci/devices to both."""
    sys = _tree(tmp_path, describe_host("n1", 1, vfs=4))
    devices = sys / "bus" / "pci" / "devices"
    vf = (devices / "0000:04:00.1" / "virtfn3").resolve()
    assert vf.name == "0000:04:01.1"
    assert (devices / vf.name).resolve() == vf
    assert (vf / "physfn").resolve() == (devices / "0000:04:00.1").resolve()
    assert (vf / "driver").resolve() == sys / "bus/pci/drivers/mlx5_core"
    assert (vf / "driver" / vf.name).resolve() == vf


def test_vf_addresses_follow_offset_and_stride_onto_the_next_bus(tmp_path: Path) -> None:
    """virtfnN leads where sriov_offset and sriov_stride place it, past 256 functions too."""
    sys = _tree(tmp_path, describe_host("n1", 1, vfs=150))
    pf = sys / "bus" / "pci" / "devices" / "0000:04:00.1"
    offset, stride = int(_text(pf / "sriov_offset")), int(_text(pf / "sriov_stride"))
    vf0 = vf_address("0000:04:00.1", 1, offset)
    for index in range(int(_text(pf / "sriov_numvfs"))):
        assert (pf / f"virtfn{index}").resolve().name == vf_address(vf0, stride, index)
    assert (pf / "virtfn149").resolve().name == "0000:05:05.5"
    assert (pf / "virtfn149").resolve().parent == pf.resolve().parent


def test_no_two_functions_share_an_address_a_name_or_a_device(tmp_path: Path) -> None:
    """PCI addresses, netdev names, MACs and RDMA devices are each unique, on one host; MACs among hosts."""
    functions = [*describe_host("n1", 1, vfs=120).functions(), *describe_host("n2", 2, vfs=120).functions()]
    first = functions[: len(functions) // 2]
    assert len(first) == 242
    for key in ("pci", "netdev", "rdma", "uverbs"):
        assert len({getattr(each, key) for each in first}) == len(first)
    assert len({each.mac for each in functions}) == len(functions)


def test_a_vf_has_its_rdma_device_and_its_nodes(tmp_path: Path) -> None:
    """infiniband/ and infiniband_verbs/ below a VF name the device, the class folders lead back to the VF."""
    sys = _tree(tmp_path, describe_host("n1", 1, vfs=2))
    vf = sys / "bus" / "pci" / "devices" / "0000:04:00.3"
    assert [path.name for path in (vf / "infiniband").iterdir()] == ["mlx5_3"]
    assert _text(vf / "infiniband_verbs" / "uverbs3" / "ibdev") == "mlx5_3"
    assert _text(vf / "infiniband_verbs" / "uverbs3" / "dev") == "231:195"
    assert _text(vf / "infiniband_mad" / "issm3" / "dev") == "231:67"
    assert (sys / "class/infiniband/mlx5_3/device").resolve() == vf.resolve()
    assert (sys / "class/infiniband_verbs/uverbs3/device").resolve() == vf.resolve()
    assert _text(vf / "infiniband" / "mlx5_3" / "node_guid") == "0000:0000:0000:0000"
    assert _text(sys / "class/infiniband/mlx5_0/ports/1/rate") == "100 Gb/sec (4X EDR)"


def test_uverbs_past_the_fixed_minors_have_a_dynamic_major() -> None:
    """The kernel has 32 fixed uverbs minors; code that computes 192 + N is wrong from the 33rd device on."""
    assert sysfs.device_number("uverbs", 31) == (231, 223)
    assert sysfs.device_number("uverbs", 32) == (511, 0)
    assert sysfs.device_number("issm", 63) == (231, 127)


def test_a_pf_shows_its_link_and_its_vfs_are_closed(tmp_path: Path) -> None:
    """A PF is up at its line rate; a VF's netdev is down and answers neither speed nor carrier."""
    sys = _tree(tmp_path, describe_host("n1", 1, vfs=1, total=4, mbps=200_000))
    pf, vf = sys / "class/net/enp4s0f1", sys / "class/net/enp4s0f1v0"
    assert (_text(pf / "operstate"), _text(pf / "speed"), _text(pf / "type")) == ("up", "200000", "1")
    assert _text(pf / "device" / "sriov_totalvfs") == "4"
    assert (pf / "device").resolve().name == "0000:04:00.1"
    assert _text(vf / "operstate") == "down"
    assert not (vf / "speed").exists()
    assert _text(vf / "device" / "infiniband" / "mlx5_3" / "ports" / "1" / "state") == "1: DOWN"


def test_a_cards_pfs_have_its_switch_id_in_legacy_mode(tmp_path: Path) -> None:
    """mlx5e_devlink_port_register, since Linux 5.13: the system image GUID's bytes. VFs and IPoIB netdevs have none."""
    host = describe_host("n1", 1, vfs=1)
    devices = _tree(tmp_path / "ethernet", host) / "bus/pci/devices"
    ids = {path.parent.name: _text(path) for path in devices.glob("*/net/*/phys_switch_id")}
    guid = _text(devices / "0000:04:00.0/infiniband/mlx5_0/sys_image_guid").replace(":", "")
    assert ids == dict.fromkeys(("enp4s0f0", "enp4s0f1"), bytes.fromhex(guid)[::-1].hex())
    pfs = tuple(replace(pf, link="infiniband") for pf in host.pfs)
    infiniband = _tree(tmp_path / "infiniband", replace(host, pfs=pfs))
    assert not list(infiniband.glob("bus/pci/devices/*/net/*/phys_*"))


def test_bridges_stand_above_a_pf(tmp_path: Path) -> None:
    """The path of a PF names its bridges from the root, each a PCI device too."""
    sys = _tree(tmp_path, describe_host("n1", 1, vfs=1))
    path = (sys / "bus/pci/devices/0000:04:00.0").resolve().relative_to(sys)
    assert str(path) == "devices/pci0000:00/0000:00:01.0/0000:02:00.0/0000:04:00.0"
    assert _text(sys / "bus/pci/devices/0000:02:00.0/class") == "0x060400"


def test_a_netdev_is_seen_under_its_present_name_only(tmp_path: Path) -> None:
    """Renamed, gone, and back: net/ and class/net agree each time, and net/ stays when it is empty."""
    host = describe_host("n1", 1, vfs=1)
    sys = _tree(tmp_path, host)
    vf = _vf(host, 0, 0)
    folder = sys / "bus/pci/devices" / vf.pci
    show(sys, folder.resolve(), vf, Netdev("net1", 9, vf.mac, mtu=9000, up=True))
    assert [path.name for path in (folder / "net").iterdir()] == ["net1"]
    assert not (sys / "class/net/enp4s0f0v0").is_symlink()
    assert (sys / "class/net/net1/device").resolve() == folder.resolve()
    assert _text(sys / "class/net/net1/mtu") == "9000"
    show(sys, folder.resolve(), vf, None)
    assert list((folder / "net").iterdir()) == []
    assert not (sys / "class/net/net1").is_symlink()
    show(sys, folder.resolve(), vf, Netdev("net1", 9, vf.mac))
    assert _text(sys / "class/net/net1/operstate") == "down"
    assert not (sys / "class/net/net1/speed").exists()
    assert sorted(path.name for path in folder.iterdir() if path.name[0] == ".") == []


def test_the_work_for_a_tree_grows_with_its_vfs(tmp_path: Path) -> None:
    """Two PFs with 120 VFs each, 10,000 files: ten times as many VFs take nowhere near a hundred times as long."""
    took_s = {}
    for vfs in (12, 120):
        begin = time.process_time()
        sys = _tree(tmp_path / str(vfs), describe_host("n1", 1, vfs=vfs))
        took_s[vfs] = time.process_time() - begin
        assert len(list((sys / "class/net").iterdir())) == 2 * vfs + 2
    assert took_s[120] < 40 * took_s[12], took_s


def test_a_description_survives_its_file() -> None:
    """A host read from host.json equals the original, bridges and refusals included."""
    host = describe_host("n1", 3, vfs=7, total=9, mbps=25_000, refuse=("vlan",))
    assert load_host(dump_host(host)) == host


def test_a_rate_that_no_link_has_is_refused(tmp_path: Path) -> None:
    """The RDMA core describes rates by width and speed; others do not exist."""
    with pytest.raises(ValueError, match=r"pf 'enp4s0f0': 12345 Mb/s is not one of 10000, "):
        sysfs.build(tmp_path, describe_host("n1", 1, mbps=12_345))
