"""Changed rates of running pods on a simulated mlx5 PF: what is taken, how it is set, and what a kill leaves."""

import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from cni.kernel.sysfs import Sysfs
from cni.server.changed_rates import ChangedRates
from cni.server.extracts import make_folders
from cni.server.held_settings import HeldSettings
from cni.server.metrics import Metrics
from cni.vf.detach import original_settings
from cni.vf.detach.detach import detach
from cni.vf.ledger import Ledger
from cni.vf.node import Node
from devcluster.hosts.nic import describe_host
from devcluster.hosts.sysfs import build
from devcluster.hosts.vftable import VfTable
from mooring.annotations.assignment import AssignedVf, Assignment
from mooring.annotations.assignment_keys import AssignmentKeys
from mooring.annotations.assignment_signature import AssignmentSignature, dump_signature, key_id, signed_bytes
from mooring.annotations.rates import PodRates, VfRates, dump_rates
from mooring.locks import hold
from mooring.nic.settings import VfSettings
from mooring.records import extract, shared_ports
from mooring.records.ledger import LedgerEntry, Netns, Original
from mooring.records.node_offer import NAME
from mooring.records.pod_record import PodRecord, dump_pod_record
from mooring.records.rates_exchange import (
    HANDED_OVER,
    LISTED,
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
KEY, STRANGER = (Ed25519PrivateKey.from_private_bytes(bytes([number] * 32)) for number in (1, 2))


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
        (self.root / "run" / LISTED).write_text("")

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


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


@pytest.fixture
def events() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as logs:
        yield logs


def test_rates_are_recorded_then_lowered_then_raised(pod: Pod) -> None:
    """Each VF is in the ledger before the next one is set; what is told comes last, and the rest of a VF stays."""
    pod.hand_over(*NEW)
    server = pod.server()
    server.look(0)
    assert pod.steps == STEPS
    assert pod.rates() == NEW
    assert pod.state() == RatesState("ns/p", 1, in_force=True)
    entries = [pod.ledger.read(pci(vf)) for vf in range(3)]
    assert [(entry.set.vlan, entry.original.settings) for entry in entries if entry is not None] == [
        (7, VfSettings(0, 0, vlan=0))
    ] * 3
    assert (pod.value("rates_changes_total"), pod.value("pending_rates")) == (1, 0)
    server.look(1)
    assert len(pod.steps) == len(STEPS)


@pytest.mark.parametrize(
    "deaths", [*((one,) for one in range(1, len(STEPS) + 1)), *itertools.product((2, 5, 8), (1, 4))]
)
def test_a_server_that_is_killed_anywhere_is_followed_by_one_that_ends_the_work(
    pod: Pod, deaths: tuple[int, ...]
) -> None:
    """After the record, after each setting and each ledger entry, and once more while the next one repairs.

    The PF never reserves more than the larger of old and new of each VF, and nothing is told too early.
    """
    pod.hand_over(*NEW)
    for death in deaths:
        pod.steps, pod.deadly = [], death
        server = pod.server()
        try:
            server.look(0)
        except Killed:
            assert pod.state() is None
    pod.deadly = 0
    pod.server().look(0)
    assert pod.rates() == NEW
    assert pod.state() == RatesState("ns/p", 1, in_force=True)
    larger = [max(old.min_tx_rate or 0, new.min_tx_rate or 0) for old, new in zip(OLD, NEW, strict=True)]
    assert pod.most <= sum(larger) + OTHERS
    entries = {vf: pod.ledger.read(pci(vf)) for vf in range(3)}
    assert all(entry is not None and entry.original.settings == VfSettings(0, 0, vlan=0) for entry in entries.values())


@pytest.mark.parametrize("death", range(1, len(STEPS) + 1))
def test_a_decision_that_is_taken_back_after_a_kill_is_taken_back_on_the_nic_too(pod: Pod, death: int) -> None:
    """The ledger may not know yet what the PF has: a generation is in force once the PF has it."""
    pod.hand_over(*NEW)
    pod.deadly = death
    with pytest.raises(Killed):
        pod.server().look(0)
    pod.deadly = 0
    pod.hand_over(*OLD, generation=2)
    pod.server().look(0)
    assert (pod.rates(), pod.state()) == (OLD, RatesState("ns/p", 2, in_force=True))


@pytest.mark.parametrize("death", range(1, len(STEPS) + 1))
def test_what_a_killed_server_has_set_is_restored_with_the_vf(pod: Pod, death: int) -> None:
    """DEL needs no server: the entry says of each rate that was changed that it was."""
    pod.hand_over(*NEW)
    pod.deadly = death
    with pytest.raises(Killed):
        pod.server().look(0)
    pod.deadly = 0
    for vf in range(3):
        entry = pod.ledger.read(pci(vf))
        assert entry is not None
        original_settings.restore(pod.node, entry)
    assert pod.rates() == (VfRates(), VfRates(), VfRates())


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_vf_on_its_way_back_reserves_what_a_killed_server_had_raised(pod: Pod, is_recorded: bool) -> None:
    """The server had set 45,000 and not entered it; the inventory names the entry's rate until the VF is restored."""
    pod.hand_over(*NEW)
    pod.deadly = STEPS.index("set 1") + 1
    with pytest.raises(Killed):
        pod.server().look(0)
    if not is_recorded:
        (pod.root / "state/pods/u1.json").unlink()
    entry = pod.ledger.read(pci(1))
    assert entry is not None
    assert (entry.reserved_mbps, pod.table.read(PF, 1).min_tx_rate) == (10_000, 45_000)
    pod.steps, pod.deadly = [], 1
    with pytest.raises(Killed):
        detach(pod.node, entry)
    left = pod.ledger.read(pci(1))
    assert left is not None
    assert (left.phase, left.reserved_mbps) == ("returning", 45_000)


def test_a_vf_on_its_way_back_counts_by_what_its_pf_has(pod: Pod) -> None:
    """Its entry says 10,000, as the new rates do; a killed server had set 30,000."""
    entry = pod.ledger.read(pci(1))
    assert entry is not None
    pod.ledger.write(replace(entry, phase="returning"))
    pod.table.write(PF, 1, VfSettings(30_000))
    pod.hand_over(*OLD)
    server = pod.server()
    server.look(0)
    assert pod.state() == RatesState("ns/p", 1, in_force=False)
    pod.table.write(PF, 1, VfSettings(0))
    server.look(1)
    assert pod.state() == RatesState("ns/p", 1, in_force=True)


def test_while_rates_are_on_their_way_nobody_is_said_to_have_changed_them(pod: Pod, events: list[Any]) -> None:
    """Between a setting and its ledger entry the PF differs from the ledger: the reconciler looks at any time."""
    pod.hand_over(*NEW)
    pod.deadly = 2
    with pytest.raises(Killed):
        pod.server().look(0)
    held = HeldSettings(pod.metrics)
    held.compare(pod.node, list(pod.ledger.entries()))
    assert [each["event"] for each in events if "held vf" in each["event"]] == []
    pod.table.write(PF, 3, VfSettings(1000))
    held.compare(pod.node, list(pod.ledger.entries()))
    assert [each["event"] for each in events if "held vf" in each["event"]] == [
        "settings of a held vf were changed by somebody"
    ]


def test_the_last_decision_counts_whatever_arrives_later(pod: Pod) -> None:
    """An older generation, or another text of the same one, changes nothing; a newer one does."""
    server = pod.server()
    pod.hand_over(*NEW, generation=3)
    server.look(0)
    for generation in (2, 3):
        pod.hand_over(*OLD, generation=generation)
        server.look(1)
        assert pod.rates() == NEW
    pod.hand_over(*OLD, generation=4)
    server.look(2)
    assert (pod.rates(), pod.state()) == (OLD, RatesState("ns/p", 4, in_force=True))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"uid": "u2"}, "'u2' is not the assignment's uid 'u1'"),
        ({"node": "n2"}, "'n2' is not the assignment's node 'n1'"),
        ({"rates": (VfRates(1),), "reserved": (1,)}, "1 entries for the 3 VFs of the assignment"),
    ],
)
def test_rates_of_another_pod_or_node_are_not_taken(
    pod: Pod, events: list[Any], changed: dict[str, Any], reason: str
) -> None:
    """The advertiser is not believed: nothing is recorded, and it is said once."""
    server = pod.server()
    pod.hand_over(*NEW, **changed)
    for second in range(3):
        server.look(second)
    assert (pod.steps, pod.state(), pod.rates()) == ([], None, OLD)
    (told,) = [each for each in events if each["event"] == "rates that were handed over are not taken"]
    assert reason in told["reason"]


@pytest.mark.parametrize("text", ["", "[]", '{"v":1,"rates":7}', '{"v":1,"rates":"{}"}', "x" * 40_000])
def test_what_cannot_be_read_changes_nothing(pod: Pod, text: str) -> None:
    """Nor does a name that is no pod's, nor one that leads out of the folder."""
    server = pod.server()
    for name in ("u1.json", "..json", "a b.json", f"{'u' * 80}.json"):
        pod.leave(text, name)
    server.look(0)
    assert (pod.steps, pod.state(), pod.rates()) == ([], None, OLD)


@pytest.mark.parametrize("kind", ["link to a file", "pipe", "folder is a link"])
def test_no_link_or_pipe_is_followed(pod: Pod, kind: str) -> None:
    """Root's files are not read for the advertiser, and nothing waits for a writer."""
    text = pod.hand_over(*NEW)
    folder = pod.root / "run" / HANDED_OVER
    aside = pod.root / "aside"
    folder.rename(aside)
    if kind == "folder is a link":
        folder.symlink_to(aside)
    else:
        folder.mkdir()
        if kind == "pipe":
            os.mkfifo(folder / "u1.json")
        else:
            (folder / "u1.json").symlink_to(aside / "u1.json")
    server = pod.server()
    server.look(0)
    assert (bool(text), pod.steps, pod.rates()) == (True, [], OLD)


def signed(key: Ed25519PrivateKey, text: bytes) -> str:
    return dump_signature(AssignmentSignature(key_id(key.public_key().public_bytes_raw()), key.sign(text)))


def test_a_node_with_keys_takes_signed_rates_only(pod: Pod, events: list[Any]) -> None:
    """Unsigned, a stranger's, an assignment's signature: none counts; what is taken needs no key any more."""
    keys = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (pod.root / "keys.pem").write_bytes(keys)
    server = pod.server()
    text = pod.hand_over(*NEW).encode()
    prefix = b"mooring.dev/rates-signature v1\0"
    forged = (None, signed(STRANGER, prefix + text), signed(KEY, signed_bytes(text)), signed(KEY, text), "{}")
    for second, signature in enumerate(forged):
        pod.hand_over(*NEW, signature=signature)
        server.look(second)
        assert (pod.steps, pod.rates()) == ([], OLD)
    told = [each["reason"] for each in events if each["event"] == "rates that were handed over are not taken"]
    assert [reason.partition(": ")[2][:24] for reason in told] == [
        "",
        f"key {key_id(STRANGER.public_key().public_bytes_raw())!r} i"[:24],
        "not the key's signature ",
        "field 'v' is missing",
    ]
    pod.hand_over(*NEW, signature=signed(KEY, prefix + text))
    server.look(9)
    assert pod.rates() == NEW


def test_rates_that_were_not_believed_are_once_the_key_is_there(pod: Pod) -> None:
    """The advertiser writes a file once: it is looked at again after some time."""
    public = STRANGER.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (pod.root / "keys.pem").write_bytes(public)
    server = pod.server()
    text = pod.hand_over(*NEW).encode()
    pod.hand_over(*NEW, signature=signed(KEY, b"mooring.dev/rates-signature v1\0" + text))
    server.look(0)
    more = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (pod.root / "keys.pem").write_bytes(public + more)
    server.look(29)
    assert pod.rates() == OLD
    server.look(31)
    assert pod.rates() == NEW


def test_what_the_nic_refuses_is_tried_again_and_is_not_in_force(pod: Pod, events: list[Any]) -> None:
    """It is told once, with PF, VF and value; the ledger says what the VF has, and a newer decision does not wait."""
    table = json.loads((pod.root / "vftable.json").read_text())
    table["pfs"][PF]["refuse"] = ["min_tx_rate"]
    accepting = json.loads((pod.root / "vftable.json").read_text())
    (pod.root / "vftable.json").write_text(json.dumps(table))
    pod.hand_over(*NEW)
    server = pod.server()
    for second in (0, 1, 19, 21):
        server.look(second)
    state = pod.state()
    assert state is not None
    assert state.refused is not None
    assert (state.in_force, state.refused.pci) == (False, pci(0))
    assert "pf 'enp4s0f0' refuses min_tx_rate 5000, max_tx_rate 8000 for vf 0" in state.refused.why
    assert pod.value("rates_failures_total") == 2
    assert len([each for each in events if each["event"] == "rates are not in force yet"]) == 1
    assert pod.value("pending_rates") == 1
    (pod.root / "vftable.json").write_text(json.dumps(accepting))
    server.look(22)
    assert pod.rates() == OLD
    pod.hand_over(*NEW, generation=2)
    server.look(23)
    assert (pod.rates(), pod.state()) == (NEW, RatesState("ns/p", 2, in_force=True))


def test_no_rate_is_raised_beyond_the_line_rate_or_the_offer(pod: Pod) -> None:
    """The scheduler sees to that; what it did not decide, or with another offer, ends here."""
    pod.hand_over(VfRates(40_000, 50_000), VfRates(41_000), VfRates())
    server = pod.server()
    server.look(0)
    state = pod.state()
    assert state is not None
    assert "min rates of 101000 Mb/s would exceed its line rate of 100000 Mb/s" in str(state.refused)
    (pod.root / "state" / NAME).write_text(node_offer(keep_percent=10))
    pod.hand_over(VfRates(40_000, 50_000), VfRates(31_000), VfRates(), generation=2)
    server.look(1)
    assert "min rates of 91000 Mb/s on pf 'enp4s0f0' would exceed 90000 Mb/s" in str(pod.state())
    assert pod.rates() == OLD
    pod.hand_over(VfRates(40_000, 50_000), VfRates(30_000), VfRates(), generation=3)
    server.look(2)
    assert pod.state() == RatesState("ns/p", 3, in_force=True)


def test_what_another_pf_of_the_cable_reserves_counts(pod: Pod) -> None:
    """Only for a VF that reserves more, as at ADD; what falls waits for nobody."""
    ports = pod.root / "run" / shared_ports.FILE
    ports.write_text(shared_ports.dump_shared_ports(((PF_PCI, OTHER_PF_PCI),)))
    pod.table.write("enp4s0f1", 0, VfSettings(25_000))
    pod.hand_over(OLD[0], VfRates(16_000), OLD[2])
    server = pod.server()
    server.look(0)
    assert "min rates of 101000 Mb/s, 25000 of them on other PFs of its cable, would exceed" in str(pod.state())
    pod.hand_over(VfRates(39_000), VfRates(16_000), OLD[2], generation=2)
    server.look(1)
    assert pod.state() == RatesState("ns/p", 2, in_force=True)


@pytest.mark.parametrize("locked", [pci(1), PF_PCI])
def test_a_call_that_works_on_the_pod_is_not_disturbed(pod: Pod, locked: str) -> None:
    """Nothing is set while an ADD or a DEL has a VF or its PF; the next look does it."""
    pod.hand_over(*NEW)
    server = pod.server()
    with hold(pod.root / "run", locked, limit_s=0):
        server.look(0)
        assert [step for step in pod.steps if step != "record"] == []
    server.look(1)
    assert pod.rates() == NEW


def test_a_vf_that_is_on_its_way_back_with_old_rates_keeps_new_ones_from_being_in_force(pod: Pod) -> None:
    """Its PF may still have the old, larger one; once it is back, nothing of the pod has it."""
    entry = pod.ledger.read(pci(0))
    assert entry is not None
    pod.ledger.write(replace(entry, phase="returning"))
    pod.hand_over(VfRates(5_000), *OLD[1:])
    server = pod.server()
    server.look(0)
    assert pod.state() == RatesState("ns/p", 1, in_force=False)
    pod.ledger.remove(pci(0))
    server.look(1)
    assert pod.state() == RatesState("ns/p", 1, in_force=True)


def test_a_pod_without_a_sandbox_has_them_in_force_at_once(pod: Pod) -> None:
    """Its next ADD sets what is recorded."""
    pod.release()
    pod.hand_over(*NEW)
    pod.server().look(0)
    assert (pod.steps, pod.state()) == (["record"], RatesState("ns/p", 1, in_force=True))


def test_a_pod_that_is_not_recorded_yet_waits_for_its_record(pod: Pod) -> None:
    """Its sandbox is about to be made: the shim records it first."""
    path = pod.root / "state/pods/u1.json"
    text = path.read_text()
    path.unlink()
    pod.hand_over(*NEW)
    server = pod.server()
    server.look(0)
    assert pod.steps == []
    path.write_text(text)
    server.look(1)
    assert pod.rates() == NEW


def test_a_default_share_is_set_where_no_min_is_left(pod: Pod) -> None:
    """The operator's share reserves nothing, and never exceeds the pod's own limit."""
    (pod.root / "state" / NAME).write_text(node_offer(default_share_mbps=500))
    pod.hand_over(VfRates(None, 300), VfRates(10_000), VfRates(2_000))
    pod.server().look(0)
    assert pod.rates() == (VfRates(300, 300), VfRates(10_000), VfRates(2_000))
    entry = pod.ledger.read(pci(0))
    assert entry is not None
    assert (entry.share, entry.reserved_mbps) == (True, 0)
    assert pod.state() == RatesState("ns/p", 1, in_force=True)


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))], ids=str)
def test_the_record_goes_once_nothing_of_the_pod_is_left(pod: Pod, order: tuple[int, ...]) -> None:
    """Not before the pod is gone from the API server, its record and its VFs: until then an ADD may need it."""
    pod.hand_over(*NEW)
    pod.say_listed()
    server = pod.server()
    server.look(0)
    record = pod.root / "state/rates/u1.json"
    steps: list[Callable[[], None]] = [
        (pod.root / "state/pods/u1.json").unlink,
        (pod.root / "run" / HANDED_OVER / "u1.json").unlink,
        pod.release,
    ]
    for second, number in enumerate(order):
        assert record.exists()
        steps[number]()
        server.look(20 * (second + 1))
    assert (record.exists(), pod.state()) == (False, None)


def test_after_a_boot_the_record_stays_until_the_advertiser_has_listed_the_pods(pod: Pod) -> None:
    """The kubelet makes no sandbox for a while, and the shim forgets the pod; but its next ADD needs the record."""
    pod.hand_over(*NEW)
    pod.say_listed()
    pod.server().look(0)
    (pod.root / "state/pods/u1.json").unlink()
    pod.release()
    given, listed = pod.root / "run" / HANDED_OVER / "u1.json", pod.root / "run" / LISTED
    text = given.read_text()
    given.unlink()
    listed.unlink()
    server = pod.server()
    for second in (20, 40, 86_400):
        server.look(second)
    record = pod.root / "state/rates/u1.json"
    assert record.exists()
    pod.leave(text)
    pod.say_listed()
    server.look(86_420)
    assert record.exists()
    given.unlink()
    server.look(86_440)
    assert not record.exists()


def test_what_a_vf_on_its_way_back_refuses_is_nobodys_to_mend(pod: Pod, events: list[Any]) -> None:
    """Its rate is not known, so nothing is in force; but no owner is told that a NIC refuses."""
    entry = pod.ledger.read(pci(0))
    assert entry is not None
    pod.ledger.write(replace(entry, phase="returning"))
    pod.hand_over(VfRates(5_000), *OLD[1:])
    server = pod.server()
    server.look(0)
    for vf in (1, 2):
        pod.ledger.remove(pci(vf))
    whole = (pod.root / "vftable.json").read_text()
    table = json.loads(whole)
    del table["pfs"][PF]
    (pod.root / "vftable.json").write_text(json.dumps(table))
    server.look(1)
    assert pod.state() == RatesState("ns/p", 1, in_force=False)
    assert [one["event"] for one in events if one["log_level"] == "warning"] == ["rates are not in force yet"]
    (pod.root / "vftable.json").write_text(whole)
    pod.ledger.remove(pci(0))
    server.look(22)
    assert pod.state() == RatesState("ns/p", 1, in_force=True)


def test_after_a_boot_states_are_shown_once_all_are_known(pod: Pod) -> None:
    """An advertiser that saw none of them would take back what it has published: the scheduler counts with it."""
    pod.hand_over(*NEW)
    pod.server().look(0)
    for path in (pod.root / "run" / STATES / "u1.json", pod.root / "run" / HANDED_OVER / "u1.json"):
        path.unlink()
    (pod.root / "run" / STATES).rmdir()
    server = pod.server()
    with hold(pod.root / "run", pci(0), limit_s=0):
        server.look(0)
        assert not (pod.root / "run" / STATES).exists()
    server.look(1)
    assert pod.state() == RatesState("ns/p", 1, in_force=True)
    again = pod.server()
    with hold(pod.root / "run", pci(0), limit_s=0):
        again.look(0)
        assert pod.state() == RatesState("ns/p", 1, in_force=True)
    again.look(1)
    assert pod.value("rates_changes_total") == 2


def test_the_advertisers_group_reads_the_states_and_nobody_else(pod: Pod) -> None:
    """As it reads the extracts: by the folder's group, which its files get."""
    pod.hand_over(*NEW)
    pod.server().look(0)
    folder = pod.root / "run" / STATES
    extracts = pod.root / "run" / extract.VFS
    states = [(path.stat().st_mode, path.stat().st_gid) for path in (folder, folder / "u1.json")]
    assert states == [(path.stat().st_mode, path.stat().st_gid) for path in (extracts, extracts / f"{pci(0)}.json")]
