"""A VF of an mlx5 InfiniBand PF, as ADD and DEL find it on a kernel without RDMA: the tree, the VF table, the ledger.

It has no netdev, so that no namespace but this one is needed. What the PF answers and takes is in `VfTable`, which
names the drivers' functions.
"""

import errno
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cni.kernel import netns
from cni.kernel.netlink import Link
from cni.kernel.sysfs import Sysfs
from cni.spec.conf import Conf
from cni.spec.skel import NIC_REFUSAL, Call, CniError
from cni.vf.attach.attach import attach
from cni.vf.detach import unrecorded
from cni.vf.detach.detach import detach
from cni.vf.ledger import Ledger
from cni.vf.node import Node
from cni.vf.observe import differences_of, observe
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from devcluster.hosts.vftable import INFINIBAND, VfTable
from mooring.annotations.assignment import AssignedVf, Assignment
from mooring.files import write_file
from mooring.nic.settings import LinkState, VfSettings
from mooring.nic.vf_addresses import vf_guid
from mooring.nic.vf_settings import VfSettingsSelector
from mooring.records.guid_failures import read_guid_failures
from mooring.records.ledger import Netns
from mooring.records.node_offer import NAME
from mooring.records.pod_record import PodRecord
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


class VfTableWithoutAnswers:
    """A PF that counts VFs and lists none, as the kernel reads it."""

    def read(self, pf: str, vf: int) -> VfSettings:
        raise OSError(errno.EMSGSIZE, f"the kernel lists 0 of the 2 vfs of pf {pf!r}", vf)

    def read_all(self, pf: str) -> Mapping[int, VfSettings]:
        raise OSError(errno.EMSGSIZE, f"the kernel lists 0 of the 2 vfs of pf {pf!r}")

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        raise AssertionError(pf, vf, settings)

    def clear_rates(self, pf: str, vfs: Iterable[int]) -> None:
        raise AssertionError(pf, list(vfs))


@pytest.fixture
def bare(tmp_path: Path) -> Node:
    """A host whose two PFs are InfiniBand, without ib_ipoib on its VFs, which were never given a GUID."""
    return _node(tmp_path, "mlx5-infiniband")


@pytest.fixture
def node(bare: Node) -> Node:
    """The same with VFs that have one."""
    for vf in (bare.sysfs.root / "bus/pci/devices").glob("*/physfn"):
        (device,) = (vf.parent / "infiniband").iterdir()
        (device / "node_guid").write_text("0200:0000:0000:0001\n")
    return bare


@pytest.fixture
def mlx4(tmp_path: Path) -> Node:
    """The same with mlx4's PFs, whose driver keeps no setting of a VF and lists none."""
    node = _node(tmp_path, "mlx4-infiniband")
    return replace(node, vf_settings=VfSettingsSelector(node.vf_settings, node.sysfs.root))


def _node(root: Path, nic: str) -> Node:
    host = describe_host("n1", 1, vfs=2, nics=[nic])
    build(root / "sys", host)
    for vf in (root / "sys/bus/pci/devices").glob("*/physfn"):
        shutil.rmtree(vf.parent / "net")
    table = VfTable(root / "vftable.json")
    table.reset(host)
    write_file(root / "state" / NAME, node_offer())
    return Node(Sysfs(root / "sys"), Ledger(root / "state"), root / "run", Writes(table, []), "b")


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
    unrecorded._record_vf(node, CALL, record, vf, link, Netns(HERE, netns.cookie_of(HERE)))
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


def test_a_vf_of_mlx4_is_handed_out_as_its_driver_made_it(mlx4: Node) -> None:
    """mlx4_ib has no get_vf_config (ib_get_vf_config): there is nothing to read, to set, or to restore."""
    _add(mlx4, VfSettings(min_tx_rate=0, max_tx_rate=0))
    entry = mlx4.ledger.read(VF0)
    assert entry is not None
    assert (entry.phase, entry.set, entry.original.settings) == ("held", VfSettings(), VfSettings())
    assert differences_of(entry, observe(mlx4, entry)) == ()
    assert _delete(mlx4)
    assert mlx4.ledger.read(VF0) is None


@pytest.mark.parametrize("wish", [VfSettings(guid="02:00:00:00:00:00:00:01"), VfSettings(link_state="auto")])
def test_what_mlx4_has_no_operation_for_is_refused_by_name(mlx4: Node, wish: VfSettings) -> None:
    """Placement keeps such a pod away; nothing is kept of one that comes all the same."""
    with pytest.raises(CniError, match=r"refuses (guid|link_state) .*EOPNOTSUPP") as refused:
        _add(mlx4, wish)
    assert refused.value.code == NIC_REFUSAL
    assert mlx4.ledger.read(VF0) is None


def test_a_pf_of_mlx5_that_lists_no_vf_is_an_error(node: Node) -> None:
    """A driver with the operations that does not answer is in trouble: its VFs are not taken for free of settings."""
    pf = node.sysfs.root / "class/net" / PF
    assert (pf / "type").read_text().strip() == "32"
    settings = VfSettingsSelector(VfTableWithoutAnswers(), node.sysfs.root)
    with pytest.raises(OSError, match="lists 0"):
        settings.read_all(PF)


def test_a_vf_without_a_guid_gets_the_one_that_init_would_give_and_keeps_it(bare: Node) -> None:
    """Without one the subnet manager gives its port no address. The next pod finds it, and no driver is rebound."""
    own = vf_guid(bare.sysfs.node_guid("0000:04:00.0") or "", 0)
    _add(bare, VfSettings())
    assert bare.vf_settings.read(PF, 0).guid == own
    assert _delete(bare)
    assert bare.vf_settings.read(PF, 0).guid == own


def test_a_pods_guid_goes_before_the_one_that_add_would_give(bare: Node) -> None:
    wished = "02:00:00:00:00:00:00:99"
    _add(bare, VfSettings(guid=wished))
    assert [each.guid for each in _written(bare) if each.guid] == [wished]


def test_zero_on_the_pf_as_well_tells_nothing(bare: Node) -> None:
    """Nothing is made from it, and the VF is handed out as it is."""
    (own,) = (bare.sysfs.root / "bus/pci/devices/0000:04:00.0/infiniband").iterdir()
    (own / "node_guid").write_text("0000:0000:0000:0000\n")
    _add(bare, VfSettings())
    assert bare.vf_settings.read(PF, 0).guid is None


def test_the_offer_can_leave_vfs_without_guids(bare: Node) -> None:
    write_file(bare.ledger.state / NAME, node_offer(repair_node_guid=False))
    _add(bare, VfSettings())
    assert bare.vf_settings.read(PF, 0).guid is None


def test_a_vf_whose_pf_refuses_the_guid_is_not_handed_out_and_is_named(bare: Node) -> None:
    """The advertiser lists it as out then. Whatever the PF refuses, the VF is given back."""

    class Refusing(Writes):
        def write(self, pf: str, vf: int, settings: VfSettings) -> None:
            if settings.guid is not None:
                raise OSError(errno.EIO, "Input/output error")
            super().write(pf, vf, settings)

    assert isinstance(bare.vf_settings, Writes)
    refusing = replace(bare, vf_settings=Refusing(bare.vf_settings.table, []))
    with pytest.raises(CniError, match="refuses guid") as refused:
        _add(refusing, VfSettings())
    assert refused.value.code == NIC_REFUSAL
    assert bare.ledger.read(VF0) is None
    assert "refuses guid" in read_guid_failures(bare.run)[VF0]
    # Rebound in a tree of files, the VF still shows no GUID.
    _add(bare, VfSettings())
    assert "still zero" in read_guid_failures(bare.run)[VF0]
