"""A node with a running pod whose rates change, on a simulated mlx5 PF: its servers can be ended after each step."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cni.kernel.sysfs import Sysfs
from cni.server.changed_rates import ChangedRates
from cni.server.extracts import make_folders
from cni.server.metrics import Metrics
from cni.vf.ledger import Ledger
from cni.vf.node import Node
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from devcluster.hosts.vftable import VfTable
from mooring.annotations.assignment import AssignedVf, Assignment
from mooring.annotations.assignment_keys import AssignmentKeys
from mooring.annotations.rates import PodRates, VfRates, dump_rates
from mooring.nic.settings import VfSettings
from mooring.records.ledger import LedgerEntry, Netns, Original
from mooring.records.node_offer import NAME
from mooring.records.pod_record import PodRecord, dump_pod_record
from mooring.records.rates_exchange import (
    HANDED_OVER,
    RATES_LIST,
    STATES,
    HandedOverRates,
    RatesState,
    dump_handed_over,
    read_state,
)
from mooring.records.rates_record import RatesRecord
from tests.support.offers import node_offer

PF, PF_PCI, OTHER_PF_PCI = "enp4s0f0", "0000:04:00.0", "0000:04:00.1"

# What the pod's three VFs were assigned, of a line rate of 100,000 Mb/s; a fourth is another pod's.
OLD = (VfRates(40_000, 50_000), VfRates(10_000), VfRates())

NEW = (VfRates(5_000, 8_000), VfRates(45_000, 90_000), VfRates(None, 3_000))

OTHERS = 20_000

# A rate that the pod had not requested is entered as it is before it changes: DEL restores what the entry names.
STEPS = ["record", "set 0", "ledger 0", "ledger 2", "set 2", "ledger 2", "ledger 1", "set 1", "ledger 1"]


class Killed(BaseException):
    """The server has ended here."""


def pci(vf: int) -> str:
    return f"0000:04:00.{vf + 2}"


@dataclass(frozen=True, slots=True)
class WatchedSettings:
    """The settings of the table, with a call after each write."""

    table: VfTable
    after: Callable[[str], None]

    def read(self, pf: str, vf: int) -> VfSettings:
        return self.table.read(pf, vf)

    def read_all(self, pf: str) -> Mapping[int, VfSettings]:
        return self.table.read_all(pf)

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        self.table.write(pf, vf, settings)
        self.after(f"set {vf}")

    def clear_rates(self, pf: str, vfs: Iterable[int]) -> None:
        self.table.clear_rates(pf, vfs)
        self.after("clear")


@dataclass(frozen=True, slots=True)
class WatchedLedger(Ledger):
    """The ledger, with a call after each write."""

    after: Callable[[str], None] = lambda _: None

    def write(self, *entries: LedgerEntry) -> None:
        Ledger.write(self, *entries)
        self.after(f"ledger {entries[0].vf}")

    def write_rates(self, record: RatesRecord) -> None:
        Ledger.write_rates(self, record)
        self.after("record")


class Pod:
    """A node with a running pod u1; each `server` has its own memory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        host = describe_host("n1", 1, vfs=4)
        build(root / "sys", host)
        self.table = VfTable(root / "vftable.json")
        self.table.reset(host)
        self.table.clear_rates(PF, range(4))
        self.metrics = Metrics()
        self.steps: list[str] = []
        self.deadly = 0
        self.most = 0
        make_folders(root / "run")
        (root / "state").mkdir()
        (root / "state" / NAME).write_text(node_offer())
        vfs = tuple(_assigned(vf, rates) for vf, rates in enumerate(OLD))
        self.record = PodRecord("ns/p", Assignment(uid="u1", node="n1", vfs=vfs))
        (root / "state/pods").mkdir()
        (root / "state/pods/u1.json").write_text(dump_pod_record(self.record))
        for vf, rates in enumerate(OLD):
            self.hold(vf, "u1", VfSettings(rates.min_tx_rate, rates.max_tx_rate, vlan=7))
        self.hold(3, "u2", VfSettings(OTHERS))

    def hold(self, vf: int, uid: str, settings: VfSettings) -> None:
        original = Original(settings=VfSettings(0, 0, vlan=0))
        netns = Netns("/run/netns/x", 1)
        self.ledger.write(
            LedgerEntry(pci(vf), PF, vf, "held", "b", uid, "ns/p", "c", "net1", netns, original, settings)
        )
        self.table.write(PF, vf, settings)

    def release(self) -> None:
        for vf in range(3):
            self.ledger.remove(pci(vf))

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.root / "state", self.root / "run")

    @property
    def node(self) -> Node:
        ledger = WatchedLedger(self.root / "state", self.root / "run", self._after)
        settings = WatchedSettings(self.table, self._after)
        return Node(Sysfs(self.root / "sys"), ledger, self.root / "run", settings, "b")

    def _after(self, step: str) -> None:
        """Note a step and what the PF reserves after it; end the server where that is asked for."""
        self.steps.append(step)
        self.most = max(self.most, self.reserved())
        if len(self.steps) == self.deadly:
            raise Killed

    def reserved(self) -> int:
        return sum(one.min_tx_rate or 0 for one in self.table.read_all(PF).values())

    def server(self) -> ChangedRates:
        return ChangedRates(lambda: self.node, AssignmentKeys(self.root / "keys.pem"), self.metrics)

    def hand_over(self, *rates: VfRates, generation: int = 1, **changed: Any) -> str:
        """Leave what the advertiser would; ``changed`` are other fields of the rates, or the signature."""
        signature = changed.pop("signature", None)
        least = tuple(one.min_tx_rate or 0 for one in rates)
        text = dump_rates(replace(PodRates("u1", "n1", generation, rates, least), **changed))
        self.leave(dump_handed_over(HandedOverRates(text, signature)))
        return text

    def leave(self, text: str, name: str = "u1.json") -> None:
        folder = self.root / "run" / HANDED_OVER
        folder.mkdir(exist_ok=True)
        (folder / ".new").write_text(text)
        (folder / ".new").rename(folder / name)

    def say_listed(self) -> None:
        """Let the advertiser say that it has left all files that there are."""
        (self.root / "run" / RATES_LIST).write_text("")

    def rates(self) -> tuple[VfRates, ...]:
        """Return what the PF has."""
        found = self.table.read_all(PF)
        return tuple(VfRates(found[vf].min_tx_rate or None, found[vf].max_tx_rate or None) for vf in range(3))

    def state(self) -> RatesState | None:
        path = self.root / "run" / STATES / "u1.json"
        return read_state(path.read_text(), path.name) if path.exists() else None

    def value(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"mooring_cni_{name}")


def _assigned(vf: int, rates: VfRates) -> AssignedVf:
    return AssignedVf(PF, vf, pci(vf), "ethernet", "rail0", VfSettings(rates.min_tx_rate, rates.max_tx_rate, vlan=7))
