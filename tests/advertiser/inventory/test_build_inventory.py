"""From sysfs trees to inventories: real layouts, and what is left of them when files go missing or turn to garbage."""

import io
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from advertiser.host.sysfs import SysfsError, read_functions
from advertiser.inventory.build_inventory import InventoryResult, build_inventory
from advertiser.inventory.facts import ClusterFacts, Host
from advertiser.inventory.offer import EVERYTHING, Offer, OfferEntry, Terms
from advertiser.show import as_json, print_table
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from mooring.annotations.inventory import dump_inventory, read_inventory
from mooring.annotations.pf_terms import Access, Allow
from mooring.nic.settings import VfSettings

Tree = Mapping[str, Any]


def judged(sysfs: Path, offer: Offer = EVERYTHING) -> InventoryResult:
    return build_inventory(Host("boot", read_functions(sysfs)), offer, ClusterFacts(), "n1")


def published(found: InventoryResult) -> list[Any]:
    document = json.loads(dump_inventory(found.inventory))
    pfs: list[Any] = document["pfs"]
    return pfs


def test_a_layout_gives_the_inventory_that_a_person_wrote_down(layout: Tree, tree: Callable[[Tree], Path]) -> None:
    """Every field of every PF, and the reason for every device that is left out."""
    found = judged(tree(layout))
    assert layout["pfs_expected"] == published(found)
    assert layout["left_out"] == {left.pci: left.why for left in found.ignored}


def test_offered_vfs_without_a_node_guid_are_named(tmp_path: Path) -> None:
    """They stay on offer. One that was given a MAC before its driver was bound has a GUID, and so has a bound one."""
    build(tmp_path, describe_host("n1", 1, vfs=4))
    devices = tmp_path / "bus/pci/devices"
    for vf, text in (("0000:04:00.3", "0200:01ff:fe00:0001"), ("0000:04:00.4", "0000:00ff:fe00:0000")):
        (device,) = (devices / vf / "infiniband").iterdir()
        (device / "node_guid").write_text(f"{text}\n")
    found = judged(tmp_path)
    assert [(each.pf, str(each.vfs)) for each in found.warnings] == [("enp4s0f0", "0,2-3"), ("enp4s0f1", "0-3")]
    assert [pf["vfs"] for pf in published(found)] == ["0-3", "0-3"]
    document = json.loads(as_json(found, "n1"))
    assert {(each["pf"], each["vfs"]) for each in document["warnings"]} == {("enp4s0f0", "0,2-3"), ("enp4s0f1", "0-3")}
    shown = Console(width=160, record=True, file=io.StringIO())
    print_table(found, "n1", shown)
    assert "enp4s0f0 VF 0,2-3 is on offer with a fault: no node GUID" in shown.export_text()


@pytest.mark.parametrize("name", [b"a b", b"mlx5\xff"])
def test_a_pf_whose_rdma_device_was_renamed_stays_in_the_inventory(name: bytes, tmp_path: Path) -> None:
    """In shared mode any pod with NET_ADMIN can rename it."""
    build(tmp_path, describe_host("n1", 1, vfs=2))
    before = published(judged(tmp_path))
    folder = tmp_path / "bus/pci/devices/0000:04:00.0/infiniband"
    (device,) = folder.iterdir()
    device.rename(folder / os.fsdecode(name))
    found = judged(tmp_path)
    assert published(found) == [{key: pf[key] for key in pf if key != "rdma" or pf != before[0]} for pf in before]
    (text,) = {each.why for each in found.warnings if "RDMA" in each.why}
    assert text == f"the PF's RDMA device has the invalid name {os.fsdecode(name)!r}, which is not published"


def test_on_infiniband_a_node_guid_of_zeros_is_not_named(tmp_path: Path) -> None:
    """`init` or a pod sets one there."""
    host = describe_host("n1", 1, vfs=2)
    build(tmp_path, replace(host, pfs=tuple(replace(pf, link="infiniband") for pf in host.pfs)))
    assert judged(tmp_path).warnings == ()


def of_infiniband(sysfs: Path, *without: int) -> Host:
    """Return a host whose InfiniBand PF has three VFs, of which those in ``without`` have no netdev."""
    host = describe_host("n1", 1, vfs=3)
    build(sysfs, replace(host, pfs=tuple(replace(pf, link="infiniband") for pf in host.pfs)))
    function = read_functions(sysfs)[0]
    lacking = {index: replace(function.vfs[index], netdev=False, lacks_netdev=True) for index in without}
    return Host("boot", (replace(function, vfs={**function.vfs, **lacking}),))


@pytest.mark.parametrize(("without", "told"), [((), True), ((1,), False), ((0, 1, 2), False)])
def test_an_infiniband_pf_tells_whether_all_of_its_vfs_have_netdevs(
    without: tuple[int, ...], told: bool, tmp_path: Path
) -> None:
    (pf,) = build_inventory(of_infiniband(tmp_path, *without), EVERYTHING, ClusterFacts(), "n1").inventory.pfs
    assert (pf.link, pf.vf_netdevs) == ("infiniband", told)


@pytest.mark.parametrize(("in_sysfs", "can"), [(True, frozenset({"guid", "link_state"})), (False, frozenset())])
def test_a_pf_without_a_netdev_can_what_its_driver_has_in_sysfs(
    in_sysfs: bool, can: frozenset[str], tmp_path: Path
) -> None:
    """NVIDIA's own mlx5_core has the folder, the kernel's has none."""
    host = of_infiniband(tmp_path, 0, 1, 2)
    address = host.functions[0].address
    if in_sysfs:
        (tmp_path / "bus/pci/devices" / address / "sriov").mkdir()
    shutil.rmtree(tmp_path / "bus/pci/devices" / address / "net")
    found = build_inventory(Host("boot", read_functions(tmp_path)[:1]), EVERYTHING, ClusterFacts(), "n1")
    assert [(pf.name, pf.can) for pf in found.inventory.pfs] == [(address.replace(":", "-"), can)]


@pytest.mark.parametrize(("without", "told"), [((1,), True), ((0, 1, 2), False)])
def test_a_vf_that_moves_counts_only_where_all_lack_one(without: tuple[int, ...], told: bool, tmp_path: Path) -> None:
    """IPoIB's netdev is made again with its device; where no VF has one a VF on its way has none either."""
    host = of_infiniband(tmp_path, *without)
    address = host.functions[0].vfs[1].address
    assert address is not None
    host = replace(host, unsettled=frozenset({address}))
    (pf,) = build_inventory(host, EVERYTHING, ClusterFacts(), "n1").inventory.pfs
    assert pf.vf_netdevs == told


def test_a_forced_vlan_is_published_for_new_and_old_schedulers(tmp_path: Path) -> None:
    """An old one ignores `vlan`, and by `allow` refuses every other VLAN too; the node sets it whatever was asked."""
    build(tmp_path, describe_host("n1", 1, vfs=2))
    found = judged(tmp_path, Offer((OfferEntry((), Terms(vlan=100, allow=Allow(trust=True))),)))
    assert {(pf["vlan"], str(pf["allow"])) for pf in published(found)} == {(100, "{'trust': True, 'vlan': '100'}")}
    (pf, *_) = read_inventory(dump_inventory(found.inventory)).pfs
    for vlan, is_fine in ((None, True), (100, True), (101, False), (0, False)):
        assert (pf.allow.refusal(VfSettings(vlan=vlan), pf.vlan) == "") == is_fine
    assert pf.allow.refusal(VfSettings(vlan=101)) == "vlan 101 is not allowed on the network"


def test_who_may_use_a_pf_is_published_and_shown(tmp_path: Path) -> None:
    """Without such terms the inventory has the bytes that it had before."""
    build(tmp_path, describe_host("n1", 1, vfs=2))
    access = Access(("team-a", "ml-*"), 50, 1)
    restricted = (("name", "enp4s0f0"),)
    found = judged(tmp_path, Offer((OfferEntry((), Terms(access=access)),)))
    pfs = published(found)
    expected = {"entry": 1, "max_share": 50, "namespaces": ["team-a", "ml-*"]}
    assert [pf.pop("access") for pf in pfs] == [expected] * 2
    assert pfs == published(judged(tmp_path))
    assert {pf.access for pf in read_inventory(dump_inventory(found.inventory)).pfs} == {access}
    shown = Console(width=160, record=True, file=io.StringIO())
    print_table(judged(tmp_path, Offer((OfferEntry(restricted, Terms(access=access)),))), "n1", shown)
    assert "enp4s0f0 is for namespaces team-a, ml-*" in shown.export_text(clear=False)
    assert "each namespace may hold 50 % of the VFs of enp4s0f0 and the PFs of the same entry" in shown.export_text()


def test_a_pf_that_cannot_have_the_forced_vlan_is_not_offered(tmp_path: Path) -> None:
    """Its VFs would be on the network without it."""
    host = describe_host("n1", 1, vfs=2)
    build(tmp_path, replace(host, pfs=tuple(replace(pf, link="infiniband") for pf in host.pfs)))
    found = judged(tmp_path, Offer((OfferEntry((), Terms(vlan=100)),)))
    assert found.inventory.pfs == ()
    assert {nic.why for nic in found.ignored} == {
        "its VFs cannot get the offer's vlan 100: the PF or its driver does not support VLANs"
    }


def test_240_vfs_fit_into_two_kibibytes(named_layout: Callable[[str], Tree], tree: Callable[[Tree], Path]) -> None:
    """The annotation stays small where every VF is in use and some are out."""
    found = judged(tree(named_layout("many-vfs-two-buses")))
    assert len(dump_inventory(found.inventory)) < 1024


def test_without_a_pci_bus_the_error_names_the_folder(tmp_path: Path) -> None:
    """An unreadable host does not publish an empty inventory, which would take back what was published."""
    with pytest.raises(SysfsError, match=re.escape(str(tmp_path / "bus/pci/devices"))):
        read_functions(tmp_path)


_GARBAGE = st.one_of(
    st.none(),
    st.sampled_from([b"", b"-1", b"4294967295", b"99999999999999999999", b"\xff\xfe", b"\0", b"0x", b"65535", b"1\n2"]),
    st.binary(max_size=40),
)


# The layout with 254 VFs is left out: it takes a second to copy, and its parts are those of the others.
_SMALL = (
    "bnxt-roce",
    "broken",
    "connectx6-infiniband",
    "connectx4-infiniband-sdr",
    "connectx6dx-inbox-ethernet",
    "mlx4-two-ports",
    "mlx5-switchdev",
)


@pytest.mark.parametrize("name", _SMALL)
@given(data=st.data())
@settings(max_examples=60)
@pytest.mark.slow
def test_any_part_missing_or_garbage_gives_an_inventory_or_a_reason(
    data: st.DataObject,
    name: str,
    named_layout: Callable[[str], Tree],
    tree: Callable[[Tree], Path],
    tmp_path: Path,
) -> None:
    """Every PF is either described, readable for the scheduler, or left out by name; nothing is raised."""
    broken = tmp_path / "broken"
    shutil.rmtree(broken, ignore_errors=True)
    whole = tmp_path / "sys"
    shutil.copytree(whole if whole.exists() else tree(named_layout(name)), broken, symlinks=True)
    paths = sorted(path for path in broken.rglob("*") if "drivers" not in path.parts)
    for path in data.draw(st.lists(st.sampled_from(paths), max_size=6, unique=True)):
        spoil(path, data.draw(_GARBAGE))
    try:
        found = judged(broken)
    except SysfsError:
        return
    assert read_inventory(dump_inventory(found.inventory)) == found.inventory
    functions = {function.address for function in read_functions(broken)}
    assert functions == {pf.pci for pf in found.inventory.pfs} | {left.pci for left in found.ignored}
    assert all(left.why for left in found.ignored)


def spoil(path: Path, content: bytes | None) -> None:
    """Remove what is at a path, or put a file with this content there."""
    if not path.is_symlink() and not path.exists():
        return
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    if content is not None:
        path.write_bytes(content)


def test_one_broken_pf_never_hides_the_other(named_layout: Callable[[str], Tree], tree: Callable[[Tree], Path]) -> None:
    """With the first PF's whole folder unreadable the second is as it was."""
    sysfs = tree(named_layout("connectx6dx-inbox-ethernet"))
    before = published(judged(sysfs))
    (sysfs / "bus/pci/devices/0000:3b:00.0/sriov_numvfs").write_text("many")
    found = judged(sysfs)
    assert published(found) == before[1:]
    assert [left.pci for left in found.ignored] == ["0000:3b:00.0"]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("a:b", "name: 'a:b' is not an interface name"),
        ("a-name-of-16-char", "name: "),
        ("ens1f1np1", "belongs to another"),
    ],
)
def test_a_name_that_no_reader_takes_is_kept_out_of_the_annotation(
    name: str, complaint: str, named_layout: Callable[[str], Tree], tree: Callable[[Tree], Path]
) -> None:
    """One bad name in the annotation would hide every PF of the node from the scheduler."""
    sysfs = tree(named_layout("connectx6dx-inbox-ethernet"))
    net = sysfs / "bus/pci/devices/0000:3b:00.0/net"
    (net / "ens1f0np0").rename(net / name)
    found = judged(sysfs)
    assert len(found.inventory.pfs) == 1
    assert read_inventory(dump_inventory(found.inventory)) == found.inventory
    assert complaint in found.ignored[0].why
