"""`init` on a PF whose VFs were made without a MAC: each gets a node GUID, unless somebody has it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from advertiser.host import read_host
from advertiser.host.read_host import Roots
from advertiser.init import pci_driver
from advertiser.init.prepare_pf import PfPreparer
from advertiser.inventory.build_inventory import build_inventory
from advertiser.inventory.facts import ClusterFacts
from advertiser.inventory.offer import EVERYTHING, Init, Offer, OfferEntry, Terms
from devcluster.hosts.nic import describe_host
from devcluster.hosts.pci_bus import PciBus
from devcluster.hosts.personalities.personality import NO_MAC, guid_of
from devcluster.hosts.sysfs import build
from devcluster.hosts.vftable import VfTable
from mooring.annotations.assignment import AssignedVf, Assignment
from mooring.files import write_file
from mooring.indexes import Indexes
from mooring.locks import hold
from mooring.nic.settings import VfSettings
from mooring.nic.vf_users import Contexts, HostFacts, Link
from mooring.records import node_offer
from mooring.records.ledger import LedgerEntry, Netns, Original, dump_ledger_entry, ledger_name
from mooring.records.pod_record import PodRecord, dump_pod_record, pod_record_name
from tests.advertiser.init.nics import TableNic

PF, PF_PCI, VFS = "enp4s0f0", "0000:04:00.0", ("0000:04:00.1", "0000:04:00.2")
NONE = "0000:0000:0000:0000"


@dataclass(frozen=True, slots=True)
class Machine:
    """A host with one PF and its VFs, all of them bound."""

    roots: Roots
    table: VfTable
    bus: PciBus

    def prepare(self, terms: Terms | None = None) -> list[str]:
        """Run `init`; return what it could not do."""
        offer = Offer((OfferEntry((), terms or Terms(init=Init(2))),))
        failures = PfPreparer(self.roots, TableNic(self.table), lambda *_: None).prepare_all(offer, "n1")
        return [str(failure) for failure in failures]

    def guids(self) -> list[str]:
        folders = (self.roots.sysfs / "bus/pci/devices" / vf / "infiniband" for vf in VFS)
        return [(next(folder.iterdir()) / "node_guid").read_text().strip() for folder in folders]

    def macs(self) -> list[str | None]:
        return [settings.mac for settings in self.table.read_all(PF).values()]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Somebody has written 2 to sriov_numvfs, with autoprobe on."""
    host = describe_host("n1", 1, pfs=1, vfs=2)
    build(tmp_path / "sys", host)
    table = VfTable(tmp_path / "vftable.json")
    table.reset(host)
    bus = PciBus(tmp_path / "sys", host, table)
    monkeypatch.setattr(pci_driver, "write", bus.write)
    return Machine(Roots(tmp_path / "sys", tmp_path / "state", tmp_path / "run"), table, bus)


def test_bound_vfs_get_a_mac_and_their_driver_again(machine: Machine) -> None:
    """The MAC is the one that init gives to VFs that it makes; a second run does nothing; spoof check stays off."""
    assert machine.guids() == [NONE, NONE]
    assert machine.prepare() == []
    macs = machine.macs()
    assert (len({*macs, NO_MAC, None}), machine.guids()) == (4, [guid_of(mac or "") for mac in macs])
    assert machine.prepare() == []
    assert machine.bus.bound == list(VFS)
    assert [each.spoofchk for each in machine.table.read_all(PF).values()] == [False, False]


def test_a_mac_that_the_operator_set_is_kept(machine: Machine) -> None:
    """It was set after the driver was bound: only the bind is missing."""
    machine.table.write(PF, 1, VfSettings(mac="02:00:00:00:00:77"))
    assert machine.prepare() == []
    assert (machine.macs()[1], machine.guids()[1]) == ("02:00:00:00:00:77", guid_of("02:00:00:00:00:77"))


def in_the_ledger(state: Path) -> None:
    netns = Netns("/run/netns/p", 1)
    entry = LedgerEntry(VFS[0], PF, 0, "held", "b", "u1", "ns/p", "c1", "net1", netns, Original("eth2"))
    write_file(state / ledger_name(VFS[0]), dump_ledger_entry(entry))


def in_a_pods_record(state: Path) -> None:
    assignment = Assignment("u1", "n1", (AssignedVf(PF, 0, VFS[0], "ethernet", "default"),))
    write_file(state / pod_record_name("u1"), dump_pod_record(PodRecord("ns/p", assignment)))


@pytest.mark.parametrize("held", [in_the_ledger, in_a_pods_record])
def test_a_vf_that_a_pod_has_or_is_about_to_get_is_left(machine: Machine, held: Callable[[Path], None]) -> None:
    """ADD does the same, under the VF's lock."""
    held(machine.roots.state)
    assert machine.prepare() == []
    assert (machine.guids()[0], machine.bus.bound) == (NONE, [VFS[1]])


def test_a_vf_whose_lock_is_busy_is_left(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call is at work on it."""
    monkeypatch.setattr("advertiser.init.repair_node_guid._VF_LOCK_S", 0.0)
    with hold(machine.roots.run, VFS[1], 0), capture_logs() as logs:
        assert machine.prepare() == []
    assert machine.bus.bound == [VFS[0]]
    assert [line["vf"] for line in logs if line["event"] == "VF still has no node GUID"] == [1]


PORT = (Link(7, "br0", "bridge"), Link(8, "eth9", parent=VFS[1], master=7))


@pytest.mark.parametrize(
    ("links", "contexts", "reason"),
    [
        (PORT, {}, "the host uses eth9 (port of br0)"),
        ((), {VFS[1]: (Contexts("mlx5_9", ("perftest 71",)),)}, "the host uses mlx5_9 (process perftest 71)"),
        ((), {"0000:07:00.2": (Contexts("mlx5_9"),)}, "the kernel does not report who uses its RDMA device {}"),
    ],
)
def test_a_vf_that_the_host_uses_is_left(
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
    links: tuple[Link, ...],
    contexts: dict[str, tuple[Contexts, ...]],
    reason: str,
) -> None:
    """A rebind would take the netdev from its bridge, and end every process on the RDMA device."""
    used = next((machine.roots.sysfs / "bus/pci/devices" / VFS[1] / "infiniband").iterdir()).name
    facts = HostFacts(links, contexts={VFS[0]: (Contexts("mlx5_8"),), **contexts} if contexts else None)
    monkeypatch.setattr(read_host, "read_facts", lambda *_: facts)
    with capture_logs() as logs:
        assert machine.prepare() == []
    assert machine.bus.bound == [VFS[0]]
    (told,) = (line for line in logs if line["event"] == "VF still has no node GUID")
    assert (told["vf"], told["reason"]) == (1, reason.format(used))


def test_a_record_that_cannot_be_read_may_name_any_vf(machine: Machine) -> None:
    """So none is touched, and the log says why."""
    write_file(machine.roots.state / pod_record_name("u1"), "{")
    with capture_logs() as logs:
        assert machine.prepare() == []
    assert machine.bus.bound == []
    assert [line["pf"] for line in logs if line["event"] == "VFs still have no node GUID"] == [PF]


def test_the_offer_keeps_vfs_as_they_are(machine: Machine) -> None:
    """Those that the host keeps, or all of a PF; mooring-cni finds the latter in the state folder."""
    assert machine.prepare(Terms(init=Init(2), repair_node_guid=False)) == []
    assert machine.bus.bound == []
    text = (machine.roots.state / node_offer.NAME).read_text()
    assert node_offer.read_node_offer(text) == {PF_PCI: node_offer.PfOffer(repair_node_guid=False, network="default")}
    assert machine.prepare(Terms(init=Init(2), set_aside=Indexes.of([0]))) == []
    assert machine.bus.bound == [VFS[1]]
    text = (machine.roots.state / node_offer.NAME).read_text()
    assert node_offer.read_node_offer(text) == {
        PF_PCI: node_offer.PfOffer(network="default", set_aside=Indexes.of([0]))
    }


def test_a_vf_that_was_taken_from_its_driver_is_finished_by_the_next_run(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run died in between: the VF counts as a fresh one, and gets spoof check too."""
    with monkeypatch.context() as dying:
        dying.setattr(pci_driver, "bind", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            machine.prepare()
    assert machine.prepare() == []
    macs = machine.macs()
    assert machine.guids() == [guid_of(mac or "") for mac in macs]
    assert [each.spoofchk for each in machine.table.read_all(PF).values()] == [True, False]


def test_a_vf_that_its_driver_does_not_take_back_is_a_failure(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the VF and the driver."""

    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(pci_driver, "bind", refuse)
    (failure,) = machine.prepare()
    assert failure.startswith(f"{PF}: VF {VFS[0]}: driver 'mlx5_core' does not bind again (Input/output error)")


def test_vfs_that_keep_spoof_check_off_are_named(machine: Machine) -> None:
    """Those of an earlier version are: pods may rely on it. An offer that says off is silent."""
    machine.table.write(PF, 0, VfSettings(spoofchk=True))
    for spoofchk, named in ((None, ["1"]), (True, ["1"]), (False, [])):
        with capture_logs() as logs:
            assert machine.prepare(Terms(init=Init(2, VfSettings(spoofchk=spoofchk)))) == []
        assert [line["vfs"] for line in logs if line["event"] == "VFs keep spoof check off"] == named


def test_a_vf_whose_mac_is_refused_keeps_its_spoof_check(machine: Machine) -> None:
    """mlx5 has no ingress ACL after the refusal, and reports spoof check on: both are written again."""
    machine.table.write(PF, 0, VfSettings(spoofchk=True))
    machine.table.change_pf(PF, firmware_refuses=1)
    with capture_logs() as logs:
        assert machine.prepare() == []
    assert [line["vf"] for line in logs if line["event"] == "VF still has no node GUID"] == [0]
    assert machine.table.checks_macs(PF, 0)


def test_a_vf_that_is_refused_its_spoof_check_too_is_nobodys_until_the_next_run(machine: Machine) -> None:
    """Without its driver it is not on offer, and the next run prepares it as a fresh one."""
    machine.table.write(PF, 0, VfSettings(spoofchk=True))
    machine.table.change_pf(PF, firmware_refuses=1000)
    (failure,) = machine.prepare()
    assert failure.startswith(f"{PF}: VF {VFS[0]}: the NIC rejects its MAC and spoof check")
    assert not (machine.roots.sysfs / "bus/pci/devices" / VFS[0] / "driver").exists()
    machine.table.change_pf(PF, firmware_refuses=0)
    assert machine.prepare() == []
    assert machine.table.checks_macs(PF, 0)


@pytest.fixture
def infiniband(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Somebody has made two VFs of an InfiniBand PF, and given them no GUIDs."""
    host = describe_host("n1", 1, pfs=1, vfs=2, nics=["mlx5-infiniband"])
    build(tmp_path / "sys", host)
    table = VfTable(tmp_path / "vftable.json")
    table.reset(host)
    bus = PciBus(tmp_path / "sys", host, table)
    monkeypatch.setattr(pci_driver, "write", bus.write)
    return Machine(Roots(tmp_path / "sys", tmp_path / "state", tmp_path / "run"), table, bus)


def outs(machine: Machine) -> dict[str, str]:
    inventory = build_inventory(read_host.read_host(machine.roots), EVERYTHING, ClusterFacts(), "n1").inventory
    return {str(out.vfs): out.why for out in inventory.pfs[0].out}


def test_infiniband_vfs_get_guids_and_their_driver_again(infiniband: Machine) -> None:
    """Until then they are on offer: ADD would give them one. A second run does nothing."""
    assert (infiniband.guids(), outs(infiniband)) == ([NONE, NONE], {})
    assert infiniband.prepare() == []
    guids = [settings.guid for settings in infiniband.table.read_all(PF).values()]
    assert infiniband.guids() == ["0200:ef03:0000:0100", "0201:ef03:0000:0100"]
    assert [guid.replace(":", "") for guid in guids if guid] == [guid.replace(":", "") for guid in infiniband.guids()]
    assert infiniband.prepare() == []
    assert (infiniband.bus.bound, outs(infiniband)) == (list(VFS), {})


def test_an_infiniband_vf_whose_guid_is_refused_is_out_until_it_has_one(
    infiniband: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(infiniband.table, "write", refuse)
        assert infiniband.prepare() == []
    assert list(outs(infiniband)) == ["0-1"]
    assert outs(infiniband)["0-1"].startswith("no GUID: its GUID cannot be set: ")
    assert infiniband.prepare() == []
    assert outs(infiniband) == {}


def test_zero_on_an_infiniband_pf_as_well_is_not_known_to_be_a_fault(infiniband: Machine) -> None:
    (device,) = (infiniband.roots.sysfs / "bus/pci/devices" / PF_PCI / "infiniband").iterdir()
    (device / "node_guid").write_text(f"{NONE}\n")
    assert infiniband.prepare() == []
    assert (infiniband.guids(), infiniband.bus.bound, outs(infiniband)) == ([NONE, NONE], [], {})


def test_infiniband_vfs_without_guids_are_out_where_nobody_can_set_one(infiniband: Machine) -> None:
    """The PF has no netdev, and the kernel no other way (`mooring.nic.vf_settings_sysfs` is MLNX_OFED's)."""
    for netdev in (infiniband.roots.sysfs / "bus/pci/devices" / PF_PCI / "net").iterdir():
        netdev.rename(infiniband.roots.sysfs / netdev.name)
    assert outs(infiniband) == {"0-1": "no GUID, and the PF has no setting for one: load ib_ipoib"}
