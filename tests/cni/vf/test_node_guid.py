"""ADD and DEL on a VF of mlx5 that was made without an admin MAC: real links, a tree and a VF table for the rest."""

import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cni.kernel import driver, netlink, netns
from cni.kernel.sysfs import Sysfs
from cni.spec.conf import Conf
from cni.spec.skel import NIC_REFUSAL, Call, CniError
from cni.vf.attach import attach as attaching
from cni.vf.attach import guid
from cni.vf.attach.attach import attach
from cni.vf.detach.detach import detach
from cni.vf.ledger import Ledger
from cni.vf.node import Node, temporary_name
from devcluster.hosts.netdevs import Netdev, show
from devcluster.hosts.nic import Function, describe_host
from devcluster.hosts.pci_bus import PciBus
from devcluster.hosts.personalities.personality import NO_MAC, guid_of
from devcluster.hosts.sysfs import Tree, build
from devcluster.hosts.vftable import VfTable
from mooring.annotations.assignment import AssignedVf, Assignment
from mooring.files import write_file
from mooring.locks import LockBusyError, hold
from mooring.nic.settings import VfSettings
from mooring.records import node_offer
from mooring.records.ledger import LedgerEntry
from mooring.records.pod_record import PodRecord
from tests.support import offers

pytestmark = pytest.mark.root

PF, PF_PCI, VF0 = "enp4s0f0", "0000:04:00.0", "0000:04:00.2"
HOST, POD = "/run/netns/mooring-guid-host", "/run/netns/mooring-guid-pod"
WISH = "02:00:00:00:00:77"


def _ip(words: str) -> None:
    subprocess.run(("ip", *words.split()), check=True)


def _index(name: str) -> int:
    index = netns.run_in(HOST, lambda: netlink.index_of(name))
    assert index is not None, f"no interface {name!r}"
    return index


class LinkBus(PciBus):
    """A PCI bus whose VF's netdev is a real link of the host's namespace."""

    dies_after_unbind = False

    def take_netdev(self, function: Function) -> None:
        _ip(f"-n {Path(HOST).name} link delete {temporary_name(function.pci)}")
        show(self.root, Tree(self.root).folder(function), function, None)
        if self.dies_after_unbind:
            raise KeyboardInterrupt

    def show_renamed(self, name: str) -> None:
        """Show the netdev under its new name, as sysfs does."""
        (function,) = (each for each in self.host.functions() if each.pci == VF0)
        show(self.root, Tree(self.root).folder(function), function, Netdev(name, _index(name), function.mac))

    def make_netdev(self, function: Function, mac: str) -> None:
        name = f"eth{len(self.bound)}"
        _ip(f"-n {Path(HOST).name} link add {name} address {mac} type veth peer name port{len(self.bound)}")
        show(self.root, Tree(self.root).folder(function), function, Netdev(name, _index(name), mac))


@dataclass(frozen=True, slots=True)
class Machine:
    """The node, its bus, and the MAC that the VF's driver chose."""

    node: Node
    bus: LinkBus
    own: str

    def add(self, settings: VfSettings | None = None) -> LedgerEntry:
        vfs = (AssignedVf(PF, 0, VF0, "ethernet", "default", settings or VfSettings()),)
        record = PodRecord("ns/p", Assignment("u1", "n1", vfs))
        call = Call(command="ADD", container="c1", netns=POD, ifname="net1", args={}, path=(), conf={})
        netns.run_in(HOST, lambda: attach(self.node, call, Conf("net", "1.0.0"), record, vfs))
        return self.entry()

    def delete(self, boot: str = "b") -> bool:
        entry = self.entry()
        free = netns.run_in(HOST, lambda: detach(replace(self.node, boot=boot), entry))
        # A reset leaves the netdev where it is.
        if boot == self.node.boot:
            self.bus.show_renamed(entry.original.name or "")
        return free

    def entry(self) -> LedgerEntry:
        entry = self.node.ledger.read(VF0)
        assert entry is not None
        return entry

    def node_guid(self) -> str | None:
        return self.node.sysfs.node_guid(VF0)

    def admin_mac(self) -> str | None:
        return self.bus.table.read(PF, 0).mac

    def link(self, place: str, name: str) -> netlink.Link:
        link = netns.run_in(place, lambda: netlink.find(name))
        assert link is not None
        return link


def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuse: tuple[str, ...] = ()) -> Iterator[Machine]:
    host = describe_host("n1", 1, vfs=1, refuse=refuse)
    build(tmp_path / "sys", host)
    table = VfTable(tmp_path / "vftable.json")
    table.reset(host)
    bus = LinkBus(tmp_path / "sys", host, table)
    monkeypatch.setattr(driver, "_write", bus.write)
    # The host's namespace is this thread's: DEL moves the VF to that of a process, by its id.
    monkeypatch.setattr(os, "getpid", threading.get_native_id)
    (vf,) = (function for function in host.functions() if function.pci == VF0)
    spaces = [Path(path).name for path in (HOST, POD)]
    for space in spaces:
        _ip(f"netns add {space}")
    try:
        _ip(f"-n {spaces[0]} link add {vf.netdev} address {vf.mac} mtu 1400 type veth peer name port")
        bus.show_renamed(vf.netdev)
        ledger = Ledger(tmp_path / "state")
        write_file(ledger.state / node_offer.NAME, offers.node_offer())
        yield Machine(Node(Sysfs(tmp_path / "sys"), ledger, tmp_path / "run", table, "b"), bus, vf.mac)
    finally:
        for space in spaces:
            _ip(f"netns delete {space}")


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A host whose VFs somebody has made with `echo N >sriov_numvfs`."""
    yield from machine(tmp_path, monkeypatch)


def test_add_gives_a_vf_its_node_guid_once(fresh: Machine) -> None:
    """The netdev's MAC becomes the admin MAC, and stays it: the next pod's VF is not rebound."""
    assert fresh.node_guid() == "0000:0000:0000:0000"
    entry = fresh.add()
    assert (fresh.node_guid(), fresh.admin_mac()) == (guid_of(fresh.own), fresh.own)
    assert (entry.original.settings.mac, entry.set.mac) == (NO_MAC, fresh.own)
    inside = fresh.link(POD, "net1")
    assert (inside.mac, inside.mtu, inside.up) == (fresh.own, 1400, True)
    for _ in range(2):
        assert fresh.delete()
        assert fresh.admin_mac() == fresh.own
        fresh.add()
    assert fresh.bus.bound == [VF0]
    assert fresh.node_guid() == guid_of(fresh.own)


def test_a_pods_own_mac_makes_no_node_guid(fresh: Machine) -> None:
    """Another node may give the same MAC to the pod's successor while this VF still has the GUID."""
    fresh.add(VfSettings(mac=WISH))
    assert (fresh.admin_mac(), fresh.link(POD, "net1").mac) == (WISH, WISH)
    assert fresh.node_guid() == guid_of(fresh.own)
    assert fresh.delete()
    assert (fresh.admin_mac(), fresh.link(HOST, "enp4s0f0v0").mac) == (fresh.own, fresh.own)


def test_a_mac_that_was_set_after_the_bind_makes_it(fresh: Machine) -> None:
    """The operator ran `ip link set PF vf 0 mac …` on a VF that its driver had already."""
    fresh.bus.table.write(PF, 0, VfSettings(mac=WISH))
    fresh.add()
    assert (fresh.admin_mac(), fresh.node_guid()) == (WISH, guid_of(WISH))
    assert fresh.delete()
    assert fresh.admin_mac() == WISH


def test_a_vf_whose_mac_an_earlier_version_took_away_is_repaired(fresh: Machine) -> None:
    """0000:00ff:fe00:0000 is the GUID of all VFs whose MAC was set back to zeros."""
    fresh.bus.table.write(PF, 0, VfSettings(mac=NO_MAC))
    device = fresh.bus.root / "bus/pci/devices" / VF0 / "infiniband/mlx5_2/node_guid"
    device.write_text("0000:00ff:fe00:0000\n")
    fresh.add()
    assert fresh.node_guid() == guid_of(fresh.own)


def test_the_operators_offer_may_keep_vfs_as_they_are(fresh: Machine) -> None:
    """`init` leaves what the offer says where no pod can write. "Not set" is restored as a MAC all the same."""
    write_file(fresh.node.ledger.state / node_offer.NAME, offers.node_offer(repair_node_guid=False))
    fresh.add()
    assert (fresh.admin_mac(), fresh.bus.bound) == (NO_MAC, [])
    assert fresh.delete()
    assert fresh.admin_mac() == NO_MAC
    fresh.add(VfSettings(mac=WISH))
    assert fresh.delete()
    assert (fresh.admin_mac(), fresh.bus.bound) == (fresh.own, [])


def test_a_vf_whose_pf_refuses_a_mac_is_handed_over_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only rdma_cm needs the GUID; the pod that does not use it starts as before."""
    for found in machine(tmp_path, monkeypatch, refuse=("mac",)):
        entry = found.add()
        assert (entry.phase, entry.set.mac, found.bus.bound) == ("held", None, [])
        assert found.delete()


def test_an_add_that_waits_in_vain_for_the_pf_tries_again(fresh: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """`init` may hold the PF for minutes: the MAC is not refused, and no VF handed over without one."""
    monkeypatch.setattr(guid, "_LOCK_S", 0.0)
    monkeypatch.setattr(attaching, "_LOCK_S", 0.0)
    with capture_logs() as logs, hold(fresh.node.run, "0000:04:00.0", 0), pytest.raises(LockBusyError):
        fresh.add()
    assert [line["event"] for line in logs if "node guid" in line["event"]] == []


def test_an_add_that_dies_between_unbind_and_bind_is_undone(fresh: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry says already that the MAC is changed; DEL binds the driver and puts the rest back."""
    fresh.bus.dies_after_unbind = True
    with monkeypatch.context() as killed:
        killed.setattr(attaching, "_detach_vfs", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            fresh.add()
    fresh.bus.dies_after_unbind = False
    assert (fresh.entry().phase, fresh.entry().set.mac) == ("taking", fresh.own)
    assert fresh.delete()
    assert (fresh.admin_mac(), fresh.node_guid()) == (fresh.own, guid_of(fresh.own))
    back = fresh.link(HOST, "enp4s0f0v0")
    assert (back.mac, back.mtu) == (fresh.own, 1400)


def test_a_vf_that_does_not_come_back_is_an_error_that_names_it(
    fresh: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the pod is left on it."""
    monkeypatch.setattr(LinkBus, "_probe", lambda *_: None)
    with pytest.raises(CniError, match=f"'{PF}' did not come back after a driver rebind for mac {fresh.own}") as error:
        fresh.add()
    assert error.value.code == NIC_REFUSAL


CHANGED = VfSettings(min_tx_rate=5000, mac=WISH, vlan=7, trust=True, spoofchk=True)


def test_a_reboots_reset_leaves_what_was_set_since(fresh: Machine) -> None:
    """`init` has given the VF its MAC; what still equals the pod's settings is reset, but for the spoof check.

    `init` turns that on for every VF that it makes: whether it is the pod's cannot be told.
    """
    fresh.add(CHANGED)
    _ip(f"-n {Path(POD).name} link set net1 netns {Path(HOST).name}")
    fresh.bus.table.write(PF, 0, VfSettings(mac=fresh.own, vlan=8, min_tx_rate=9000))
    assert fresh.delete(boot="next")
    now = fresh.bus.table.read(PF, 0)
    assert (now.mac, now.vlan, now.min_tx_rate) == (fresh.own, 8, 9000)
    assert (now.trust, now.spoofchk) == (False, True)


def test_a_reboots_reset_leaves_what_the_pod_found(fresh: Machine) -> None:
    """A setting that the VF had before its pod asked for the same is not the pod's."""
    fresh.bus.table.write(PF, 0, VfSettings(mac=fresh.own, spoofchk=True))
    fresh.add(VfSettings(spoofchk=True, trust=True))
    _ip(f"-n {Path(POD).name} link set net1 netns {Path(HOST).name}")
    assert fresh.delete(boot="next")
    now = fresh.bus.table.read(PF, 0)
    assert (now.mac, now.spoofchk, now.trust) == (fresh.own, True, False)


def test_a_reboots_reset_leaves_the_mac_that_add_gave(fresh: Machine) -> None:
    """Zeros would take the node GUID away at the next bind."""
    fresh.add()
    _ip(f"-n {Path(POD).name} link set net1 netns {Path(HOST).name}")
    assert fresh.delete(boot="next")
    assert fresh.admin_mac() == fresh.own


@pytest.mark.parametrize("commands", [1, 1000])
def test_a_vf_whose_mac_is_refused_is_handed_over_with_its_spoof_check_or_not_at_all(
    fresh: Machine, commands: int
) -> None:
    """mlx5 has the MAC that it refused, and no ingress ACL (esw_acl_ingress_lgcy_setup)."""
    fresh.bus.table.write(PF, 0, VfSettings(spoofchk=True))
    fresh.bus.table.change_pf(PF, firmware_refuses=commands)
    if commands == 1:
        assert fresh.add().phase == "held"
    else:
        with pytest.raises(CniError, match=f"refuses mac {fresh.own} for vf 0"):
            fresh.add()
        assert (fresh.entry().phase, fresh.entry().in_doubt) == ("returning", True)
        fresh.bus.table.change_pf(PF, firmware_refuses=0)
        assert fresh.delete()
    assert fresh.bus.table.checks_macs(PF, 0)
