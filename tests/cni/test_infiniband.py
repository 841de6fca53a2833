"""A VF of an mlx5 InfiniBand PF, as ADD and DEL find it on a kernel without RDMA: the tree, the VF table, the ledger.

It has no netdev, so that no namespace but this one is needed. What the PF answers and takes is in `VfTable`, which
names the drivers' functions.
"""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cni.kernel import netns
from cni.kernel.netlink import Link
from cni.kernel.sysfs import Sysfs
from cni.spec.conf import Conf
from cni.spec.skel import Call
from cni.vf import unrecorded
from cni.vf.attach import attach
from cni.vf.detach import detach
from cni.vf.ledger import Ledger
from cni.vf.node import Node
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from devcluster.hosts.vftable import INFINIBAND, VfTable
from mooring.assignment import AssignedVf, Assignment
from mooring.files import write_file
from mooring.ledger import Netns
from mooring.node_offer import NAME
from mooring.podrecord import PodRecord
from mooring.settings import LinkState, VfSettings
from tests.support.offers import node_offer

PF, VF0 = "enp4s0f0", "0000:04:00.2"
HERE = "/proc/self/ns/net"
CALL = Call(command="ADD", container="c1", netns=HERE, ifname="eth0", args={}, path=(), conf={})


@dataclass(frozen=True, slots=True)
class Writes:
    """The VF table, and a list of what was written to it."""

    table: VfTable
    seen: list[VfSettings]

    def read(self, pf: str, vf: int) -> VfSettings:
        return self.table.read(pf, vf)

    def read_all(self, pf: str) -> dict[int, VfSettings]:
        return dict(self.table.read_all(pf))

    def clear_rates(self, pf: str, vfs: Iterable[int]) -> None:
        self.table.clear_rates(pf, vfs)

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        self.seen.append(settings)
        self.table.write(pf, vf, settings)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A host whose two PFs are InfiniBand, without ib_ipoib on its VFs."""
    host = describe_host("n1", 1, vfs=2)
    host = replace(host, pfs=tuple(replace(pf, link="infiniband") for pf in host.pfs))
    build(tmp_path / "sys", host)
    for vf in (tmp_path / "sys/bus/pci/devices").glob("*/physfn"):
        shutil.rmtree(vf.parent / "net")
    table = VfTable(tmp_path / "vftable.json")
    table.reset(host)
    write_file(tmp_path / "state" / NAME, node_offer())
    return Node(Sysfs(tmp_path / "sys"), Ledger(tmp_path / "state"), tmp_path / "run", Writes(table, []), "b")


def _record(settings: VfSettings) -> tuple[PodRecord, Sequence[AssignedVf]]:
    vfs = (AssignedVf(PF, 0, VF0, "infiniband", "default", settings),)
    return PodRecord("ns/p", Assignment("u1", "n1", vfs)), vfs


def _add(node: Node, settings: VfSettings) -> None:
    record, vfs = _record(settings)
    attach(node, CALL, Conf("net", "1.0.0"), record, vfs)


def _delete(node: Node) -> bool:
    entry = node.ledger.read(VF0)
    assert entry is not None
    return detach(node, entry)


def _written(node: Node) -> list[VfSettings]:
    assert isinstance(node.vf_settings, Writes)
    return node.vf_settings.seen


def test_rates_of_zero_are_not_written(node: Node) -> None:
    """Requests of earlier systems have them; IPoIB has no ndo_set_vf_rate and would refuse (rtnl_set_vf_rate)."""
    _add(node, VfSettings(min_tx_rate=0, max_tx_rate=0, vlan=0, qos=0, trust=False, spoofchk=False))
    assert all(set(each.to_fields()) <= {"link_state"} for each in _written(node))
    assert _delete(node)


def test_a_vf_whose_port_is_held_down_gets_auto_and_down_again(node: Node) -> None:
    """mlx5_ib_get_vf_config reads a fresh VF like this (MLX5_POLICY_DOWN): its port would never become active."""
    _add(node, VfSettings())
    assert node.vf_settings.read(PF, 0).link_state == "auto"
    assert _delete(node)
    assert node.vf_settings.read(PF, 0).link_state == "disable"


@pytest.mark.parametrize("wish", ["disable", "enable"])
def test_a_wished_link_state_is_kept(node: Node, wish: LinkState) -> None:
    """A pod that requests a port that stays down gets it; settings that the VF has already are not written."""
    _add(node, VfSettings(link_state=wish))
    assert node.vf_settings.read(PF, 0).link_state == wish
    assert _written(node) == ([] if wish == "disable" else [VfSettings(link_state=wish)])


def test_a_vf_that_the_ledger_has_lost_is_given_back(node: Node) -> None:
    """The PF's own address, read as the VF's MAC, is neither entered nor set back."""
    before = node.vf_settings.read(PF, 0)
    record, (vf,) = _record(VfSettings())
    link = Link(index=1, name="net1", mac="", mtu=2044, up=True, altnames=(), parent=VF0)
    unrecorded._record_one(node, CALL, record, vf, link, Netns(HERE, netns.cookie_of(HERE)))
    entry = node.ledger.read(VF0)
    assert entry is not None
    node.ledger.write(replace(entry, original=replace(entry.original, name=None)))
    assert _delete(node)
    assert node.ledger.read(VF0) is None
    assert set(entry.set.to_fields()) <= {"link_state", "guid"}
    assert node.vf_settings.read(PF, 0) == replace(before, link_state="auto")


def test_an_entry_with_an_infiniband_pfs_zeros_is_closed(node: Node) -> None:
    """Earlier versions entered them, and could not set the MAC back: such a VF stayed `returning`."""
    _add(node, VfSettings())
    entry = node.ledger.read(VF0)
    assert entry is not None
    zeros = replace(INFINIBAND, mac="00:00:00:00:00:00")
    node.ledger.write(replace(entry, set=INFINIBAND, original=replace(entry.original, settings=zeros)))
    assert _delete(node)
