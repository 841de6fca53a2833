"""VFs of an InfiniBand PF on a host without ib_ipoib: neither has a netdev, and only RDMA devices are given away.

Here the RDMA stack is shared, or not there: nothing moves, and no network namespace but this one is needed.
"""

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from cni.kernel.sysfs import Sysfs
from cni.spec.conf import Conf
from cni.spec.skel import MISSING_VF, NIC_REFUSAL, Call, CniError
from cni.vf.attach.attach import attach
from cni.vf.detach.detach import detach
from cni.vf.ledger import Ledger
from cni.vf.node import Node
from cni.vf.observe import differences_of, observe
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from mooring.annotations.assignment import AssignedVf, Assignment
from mooring.files import write_file
from mooring.nic.pci import is_pf_name, pf_name
from mooring.nic.settings import VfSettings
from mooring.nic.vf_settings import VfSettingsSelector
from mooring.records.node_offer import NAME
from mooring.records.pod_record import PodRecord
from tests.support.offers import node_offer

PF_PCI, VF0 = "0000:04:00.0", "0000:04:00.2"
PF = "0000-04-00.0"
HERE = "/proc/self/ns/net"
CALL = Call(command="ADD", container="c1", netns=HERE, ifname="eth0", args={}, path=(), conf={})
# A network with addresses: the plugin does not exist, so that a call of it fails.
CONF = Conf("net", "1.0.0", ipam={"type": "no-such-ipam"})


class NoNetdev:
    """Refuses every call: no setting of such a PF may reach the kernel, which has no interface of its name."""

    def read(self, pf: str, vf: int) -> VfSettings:
        raise AssertionError(pf, vf)

    def read_all(self, pf: str) -> Mapping[int, VfSettings]:
        raise AssertionError(pf)

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        raise AssertionError(pf, vf, settings)

    def clear_rates(self, pf: str, vfs: Iterable[int]) -> None:
        raise AssertionError(pf, list(vfs))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A host on which no function has a netdev."""
    host = describe_host("n1", 1, vfs=2)
    build(tmp_path / "sys", replace(host, pfs=tuple(replace(pf, link="infiniband") for pf in host.pfs)))
    for folder in (tmp_path / "sys/bus/pci/devices").glob("*/net"):
        shutil.rmtree(folder)
    settings = VfSettingsSelector(NoNetdev(), tmp_path / "sys")
    write_file(tmp_path / "state" / NAME, node_offer())
    return Node(Sysfs(tmp_path / "sys"), Ledger(tmp_path / "state"), tmp_path / "run", settings, "b")


def add(node: Node, settings: VfSettings | None = None, pf: str = PF) -> None:
    vf = AssignedVf(pf, 0, VF0, "infiniband", "default", settings or VfSettings())
    record = PodRecord("ns/p", Assignment("u1", "n1", (vf,)))
    assert attach(node, CALL, CONF, record, (vf,)) == []


def test_a_pf_is_named_by_its_address() -> None:
    assert pf_name(PF_PCI) == PF
    assert is_pf_name(PF)
    assert not any(map(is_pf_name, ("enp4s0f0", "ibp134s0", "mlx5_0", "0000-04-00", "a-b")))


def test_its_vf_is_held_and_given_back_without_an_interface(node: Node) -> None:
    """The whole life: IPAM is not asked, the result lists no interface, CHECK finds no difference, DEL frees the VF."""
    add(node)
    entry = node.ledger.read(VF0)
    assert entry is not None
    assert (entry.phase, entry.pf, entry.original.name, entry.ipam) == ("held", PF, None, None)
    assert entry.rdma == "mlx5_2"
    assert differences_of(entry, observe(node, entry)) == ()
    assert detach(node, entry)
    assert node.ledger.read(VF0) is None


def test_an_entry_of_another_boot_is_closed(node: Node) -> None:
    add(node)
    entry = node.ledger.read(VF0)
    assert entry is not None
    assert detach(node, replace(entry, boot="before"))
    assert node.ledger.read(VF0) is None


def test_a_setting_is_refused_by_name_and_nothing_is_kept(node: Node) -> None:
    """The scheduler places no such request here; the PF may have lost its netdev since."""
    with pytest.raises(CniError, match=r"refuses guid .*EOPNOTSUPP") as refused:
        add(node, VfSettings(guid="02:00:00:00:00:00:00:01"))
    assert refused.value.code == NIC_REFUSAL
    assert node.ledger.read(VF0) is None


GUID, NO_GUID = "02:00:00:00:00:00:00:01", "00:00:00:00:00:00:00:00"


@pytest.fixture
def files(node: Node) -> Path:
    """The folder of VF 0 with the files of NVIDIA's own mlx5_core (`mooring.nic.vf_settings_sysfs`)."""
    folder = node.sysfs.root / "bus/pci/devices" / PF_PCI / "sriov"
    for vf in (0, 1):
        (folder / str(vf)).mkdir(parents=True)
        for name, text in (("node", f"{NO_GUID}\n"), ("port", f"{NO_GUID}\n"), ("policy", "Down\n")):
            (folder / str(vf) / name).write_text(text)
    return folder / "0"


def told(files: Path) -> list[str]:
    return [(files / name).read_text().strip() for name in ("node", "port", "policy")]


def test_a_pf_that_has_its_vfs_settings_in_sysfs_gives_a_pod_its_guid(node: Node, files: Path) -> None:
    """Set, read back, compared and restored there; the other VF is not touched."""
    add(node, VfSettings(guid=GUID))
    entry = node.ledger.read(VF0)
    assert entry is not None
    assert told(files) == [GUID, GUID, "Follow"]
    assert differences_of(entry, observe(node, entry)) == ()
    (files / "node").write_text(NO_GUID)
    assert differences_of(entry, observe(node, entry)) == (f"vf {VF0}: guid is None, not {GUID!r}",)
    (files / "node").write_text(GUID)
    assert detach(node, entry)
    assert told(files) == [NO_GUID, NO_GUID, "Down"]
    assert told(files.parent / "1") == [NO_GUID, NO_GUID, "Down"]


def test_a_guid_that_was_there_before_comes_back(node: Node, files: Path) -> None:
    own = "02:00:00:00:00:00:00:07"
    for name, text in (("node", own), ("port", own), ("policy", "Follow")):
        (files / name).write_text(text)
    add(node, VfSettings(guid=GUID, link_state="enable"))
    assert told(files) == [GUID, GUID, "Up"]
    entry = node.ledger.read(VF0)
    assert entry is not None
    assert detach(node, entry)
    assert told(files) == [own, own, "Follow"]


def test_what_infiniband_has_not_is_refused_before_anything_is_set(node: Node, files: Path) -> None:
    settings = node.vf_settings
    with pytest.raises(OSError, match="not supported"):
        settings.write(PF, 0, VfSettings(guid=GUID, vlan=7))
    with pytest.raises(OSError, match="not supported"):
        settings.clear_rates(PF, [0])
    assert told(files) == [NO_GUID, NO_GUID, "Down"]
    assert settings.read_all(PF) == dict.fromkeys((0, 1), VfSettings(link_state="disable"))


@pytest.mark.parametrize("name", ["enp4s0f0", "0000-04-00.1"])
def test_another_pfs_name_is_refused(name: str, node: Node) -> None:
    """Promise 3: never another VF."""
    with pytest.raises(CniError, match="is not vf 0 of pf") as refused:
        add(node, pf=name)
    assert refused.value.code == MISSING_VF


def test_a_vf_is_given_back_though_ipoib_came_or_went_meanwhile(node: Node) -> None:
    """The PF's name is then another one; the entry is found by PCI address."""
    add(node)
    entry = node.ledger.read(VF0)
    assert entry is not None
    assert node.sysfs.current_pf(VF0, "ibp4s0", 0) == (PF, 0)
    (node.sysfs.root / "bus/pci/devices" / PF_PCI / "net/ibp4s0").mkdir(parents=True)
    assert node.sysfs.current_pf(VF0, entry.pf, 0) == ("ibp4s0", 0)
