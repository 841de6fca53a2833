"""The loop that scans, on a host that changes under it: pods come and go on all of its VFs."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from advertiser.host.offer_file import OfferFile
from advertiser.host.read_host import Roots, read_host
from advertiser.inventory.build_inventory import build_inventory
from advertiser.inventory.debounce import CONFIRM_S
from advertiser.inventory.facts import ClusterFacts
from advertiser.publish.cluster_view import ClusterView
from advertiser.publish.node_resources import NodeResources
from advertiser.publish.publisher import Publisher
from advertiser.publish.scan_loop import Publishers, ScanLoop
from advertiser.publish.scanner import Scanner
from advertiser.publish.vf_event_reporter import VfEvent, VfEventReporter
from devcluster.hosts.sysfs import build
from mooring.annotations.assignment import AssignedVf, Assignment
from mooring.annotations.inventory import Inventory, read_inventory
from mooring.files import write_file
from mooring.records.ledger import LedgerEntry, Netns, Original, dump_ledger_entry, ledger_name
from mooring.records.pod_record import PodRecord, dump_pod_record, pod_record_name
from tests.support.simulated_nics import EACH, MLX5, Nic

PCI = tuple(f"0000:04:00.{index}" for index in (2, 3, 4, 5))
# A step of a move takes so long, in seconds; all of a pod's come within half a second.
STEP_S = 0.1


@dataclass
class Written:
    """What the loop has handed to its writers: the inventories in turn, and every Event."""

    inventories: list[Inventory] = field(default_factory=list)
    events: set[VfEvent] = field(default_factory=set)

    def set_desired_state(self, text: str, *_: object) -> None:
        self.inventories.append(read_inventory(text))

    def update(self, happened: frozenset[VfEvent]) -> None:
        self.events |= happened

    @property
    def outs(self) -> list[str]:
        return sorted({out.why for each in self.inventories for pf in each.pfs for out in pf.out})


class Resources:
    """No extended resources are on offer."""

    def set_desired_state(self, *_: object) -> None:
        """Take nothing."""


@dataclass
class Host:
    """A host with four VFs, what the cluster says of it, and the loop, by the clock ``now_s``."""

    folder: Path
    nic: Nic = MLX5
    now_s: float = 100.0
    vfs: int = len(PCI)
    written: Written = field(default_factory=Written)

    def __post_init__(self) -> None:
        build(self.folder / "sys", self.nic.host(vfs=self.vfs))
        roots = Roots(self.folder / "sys", self.folder / "state", self.folder / "run")
        self.scanner = Scanner(roots, OfferFile(self.folder / "offer.yaml", required=False), "n1")
        publishers = Publishers(
            cast("Publisher", self.written), cast("NodeResources", Resources()), cast("VfEventReporter", self.written)
        )
        self.loop = ScanLoop(self.scanner, cast("ClusterView", self), publishers, lambda: self.now_s)

    @property
    def cluster_facts(self) -> ClusterFacts:
        return ClusterFacts()

    def look(self) -> None:
        self.now_s += STEP_S
        self.loop.take(self.scanner.scan(self.cluster_facts), self.now_s)

    def know(self, vf: int, uid: str) -> None:
        """Record a pod as the shim does."""
        given = AssignedVf("enp4s0f0", vf, PCI[vf], self.nic.link, "default")
        record = PodRecord(f"default/{uid}", Assignment(uid, "n1", (given,)))
        write_file(self.folder / "state" / pod_record_name(uid), dump_pod_record(record))

    def entry(self, vf: int, uid: str) -> LedgerEntry:
        return LedgerEntry(
            PCI[vf],
            "enp4s0f0",
            vf,
            "held",
            Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            uid,
            f"default/{uid}",
            "c",
            "net1",
            Netns("/n", 1),
            Original(),
            set=self.nic.held,
        )

    def record(self, entry: LedgerEntry) -> None:
        write_file(self.folder / "state" / ledger_name(entry.pci), dump_ledger_entry(entry))

    def netdev(self, vf: int) -> Path:
        return self.folder / "sys/bus/pci/devices" / PCI[vf] / "net" / f"enp4s0f0v{vf}"

    def add(self, vf: int, uid: str) -> Iterator[str]:
        """Give a VF to a pod: its record comes late, as from a shim that stood still, and so does sysfs."""
        entry = self.entry(vf, uid)
        self.record(replace(entry, phase="taking"))
        yield "taking, and its assignment not seen yet"
        self.record(entry)
        yield "held, and its netdev still listed"
        self.know(vf, uid)
        yield "assigned, and its netdev still listed"
        shutil.rmtree(self.netdev(vf))
        yield "in the pod"

    def delete(self, vf: int, uid: str) -> Iterator[str]:
        """Take it back from a pod whose sandbox is being stopped."""
        (self.folder / "state" / pod_record_name(uid)).unlink()
        yield "held by a pod that is not to run"
        self.record(replace(self.entry(vf, uid), phase="returning"))
        yield "returning"
        (self.folder / "state" / ledger_name(PCI[vf])).unlink()
        yield "closed, and its netdev not listed yet"
        self.netdev(vf).mkdir()
        yield "back"


@pytest.fixture(params=EACH)
def host(tmp_path: Path, request: pytest.FixtureRequest) -> Host:
    return Host(tmp_path, request.param)


def test_a_churn_of_pods_with_a_look_between_any_two_changes_tells_nothing_false(host: Host) -> None:
    """No VF is ever out, and no pod is told that it has lost one, whichever step of a move a look falls on."""
    host.look()
    for number in range(16):
        vf, uid = number % len(PCI), f"pod-{number}"
        for steps in (host.add(vf, uid), host.delete(vf, uid)):
            for _ in steps:
                host.look()
    assert (host.written.outs, host.written.events) == ([], set())


def test_a_vf_that_stays_lost_is_told_and_cleared_without_an_event_of_the_host(host: Host) -> None:
    """The loop looks again by itself: when it is due, and after as long as it has lasted."""
    host.look()
    for _ in host.add(1, "pod-1"):
        host.look()
    host.netdev(1).mkdir()
    host.look()
    assert host.written.outs == []
    assert host.loop.wait_s(60.0) == pytest.approx(CONFIRM_S)
    host.now_s += CONFIRM_S - STEP_S + 0.001
    host.look()
    assert host.written.outs == ["lost: on the host although pod pod-1 holds it"]
    assert [(each.reason, each.uid, each.pci) for each in host.written.events] == [("VfLost", "pod-1", PCI[1])]
    shutil.rmtree(host.netdev(1))
    assert host.loop.wait_s(60.0) == pytest.approx(CONFIRM_S, abs=0.01)
    host.now_s += CONFIRM_S - STEP_S + 0.001
    host.look()
    assert host.written.inventories[-1].pfs[0].out == ()
    assert host.loop.wait_s(60.0) == 60.0


def test_nothing_is_published_at_the_start_before_what_is_found_is_confirmed(host: Host) -> None:
    """What an earlier run of the program has told would be taken back for a moment."""
    host.record(host.entry(1, "gone"))
    host.look()
    assert host.written.inventories == []
    host.now_s += CONFIRM_S - STEP_S + 0.001
    host.look()
    assert host.written.outs == ["held by pod gone"]


@pytest.mark.parametrize("nic", EACH)
def test_a_pf_whose_only_vf_comes_home_during_a_look_is_not_hidden(tmp_path: Path, nic: Nic) -> None:
    """Its ledger entry is gone at the end of the look, and its RDMA device was away at the beginning."""
    host = Host(tmp_path, nic, vfs=1)
    for _ in host.add(0, "pod-0"):
        pass
    for kind in ("infiniband", "infiniband_verbs"):
        shutil.rmtree(host.folder / "sys/bus/pci/devices" / PCI[0] / kind, ignore_errors=True)
    found = replace(read_host(host.scanner.roots), ledger={}, unsettled=frozenset(PCI[:1]))
    result = build_inventory(found, host.scanner.offer.offer(), host.cluster_facts, "n1")
    assert "enp4s0f0" in [pf.name for pf in result.inventory.pfs]
