"""The reconciler: what it takes for an orphan (values), and how it repairs one (files, locks, a namespace)."""

import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import structlog
from prometheus_client.parser import text_string_to_metric_families

from cni.forwarder import render
from cni.kernel import netns
from cni.kernel.sysfs import Sysfs
from cni.plan.orphans import UNRECORDED_S, Place, Reason, find_orphans, is_due, next_backoff
from cni.server.metrics import Metrics
from cni.server.reconcile import Reconciler
from cni.vf.ledger import Ledger
from cni.vf.node import Node
from devcluster.hosts.sysfs import build
from devcluster.hosts.vftable import VfTable
from devcluster.processes import free_ports
from mooring import locks
from mooring.locks import hold
from mooring.nic.settings import VfSettings
from mooring.program.config import ConfigError
from mooring.records.ledger import LedgerEntry, Netns, Original, Phase, dump_ledger_entry
from tests.cni.no_vf_settings import NoVfSettings
from tests.support.polling import wait_until
from tests.support.simulated_nics import MLX5

PCI = "0000:3b:01.0"


BOOT = "this boot"


LOOKED = "mooring_cni_last_reconcile_timestamp_seconds[]"


GONE = Netns("/run/netns/mooring-no-such-netns", 4711)


ENTRY = LedgerEntry(
    pci=PCI,
    pf="eth0",
    vf=0,
    phase="held",
    boot=BOOT,
    uid="u1",
    pod="ns/p",
    container="c1",
    ifname="net1",
    netns=GONE,
    original=Original(name="eth2"),
)


def reasons(entry: LedgerEntry, place: Place, *, recorded: bool = True, since: float = 0.0) -> list[Reason]:
    """Judge one entry whose record has been missing since 0 if it is, at ``since`` seconds."""
    judged = find_orphans({PCI: (entry, place)}, {"u1"} if recorded else set(), BOOT, {(PCI, "c1"): 0.0}, since)
    return [reason for _, reason in judged.orphans]


@pytest.mark.parametrize(
    ("entry", "place", "recorded", "expected"),
    [
        (ENTRY, "pod", True, []),
        (ENTRY, "host", True, ["netns_gone"]),
        (ENTRY, "pod", False, ["record_gone"]),
        (ENTRY, "away", True, []),
        (ENTRY, "away", False, ["record_gone"]),
        (replace(ENTRY, phase="taking"), "pod", True, ["killed_add"]),
        (replace(ENTRY, phase="taking"), "host", True, ["killed_add"]),
        (replace(ENTRY, phase="returning"), "host", True, ["not_returned"]),
        (replace(ENTRY, phase="returning"), "away", True, []),
        (replace(ENTRY, phase="returning"), "away", False, ["record_gone"]),
        (replace(ENTRY, phase="returning", deleted=True), "away", True, ["not_returned"]),
        (replace(ENTRY, boot="another"), "pod", True, ["other_boot"]),
        (replace(ENTRY, boot="another", phase="taking"), "away", False, ["other_boot"]),
    ],
)
def test_an_orphan_is_told_with_its_reason(
    entry: LedgerEntry, place: Place, recorded: bool, expected: list[Reason]
) -> None:
    """Each rule has its reason; a namespace that lost its path but lives on in a process keeps its VF."""
    assert reasons(entry, place, recorded=recorded, since=UNRECORDED_S) == expected


def test_a_live_sandboxs_vf_is_never_an_orphan_whatever_else_is_found() -> None:
    """No combination of findings takes a VF of this boot while a namespace may have it."""
    combinations = itertools.product(get_args(Phase), get_args(Place), *((False, True),) * 2)
    for phase, place, recorded, late in combinations:
        found = reasons(replace(ENTRY, phase=phase), place, recorded=recorded, since=UNRECORDED_S * late)
        if phase == "held" and place == "pod" and (recorded or not late):
            assert found == []
        if place == "away" and (recorded or not late):
            assert found == []


def test_a_vf_that_would_not_be_freed_is_left_alone_for_longer_each_time() -> None:
    """20 s, 40 s, … and never longer than ten minutes; one that was never tried is due."""
    backoff = None
    lengths = []
    for _ in range(7):
        backoff = next_backoff(backoff, 100.0)
        lengths.append(backoff.seconds)
        assert (is_due(backoff, 99.0 + backoff.seconds), is_due(backoff, 100.0 + backoff.seconds)) == (False, True)
    assert lengths == [20, 40, 80, 160, 320, 600, 600]
    assert is_due(None, 0.0)


def test_a_missing_record_counts_from_the_second_look_on() -> None:
    """One pass proves little: a record is missing for ten seconds, or it was not missing at all."""
    found: dict[str, tuple[LedgerEntry, Place]] = {PCI: (ENTRY, "pod")}
    first = find_orphans(found, set(), BOOT, {}, 100.0)
    assert (first.orphans, first.record_gaps) == ([], {(PCI, "c1"): 100.0})
    early = find_orphans(found, set(), BOOT, first.record_gaps, 100.0 + UNRECORDED_S - 0.1)
    assert early.orphans == []
    assert find_orphans(found, {"u1"}, BOOT, early.record_gaps, 105.0).record_gaps == {}
    late = find_orphans(found, set(), BOOT, early.record_gaps, 100.0 + UNRECORDED_S)
    assert late.orphans == [(ENTRY, "record_gone")]


def test_without_the_records_folder_no_pod_is_taken_for_gone() -> None:
    """The shim's folder was removed or never made: this proves nothing about the pods."""
    assert find_orphans({PCI: (ENTRY, "pod")}, None, BOOT, {(PCI, "c1"): 0.0}, 99.0).orphans == []
    assert find_orphans({PCI: (ENTRY, "host")}, None, BOOT, {}, 99.0).orphans == [(ENTRY, "netns_gone")]


def test_a_missing_record_of_the_sandbox_before_says_nothing_of_this_one() -> None:
    """The time of absence is kept by VF and sandbox."""
    judged = find_orphans({PCI: (replace(ENTRY, container="c2"), "pod")}, set(), BOOT, {(PCI, "c1"): 0.0}, 99.0)
    assert (judged.orphans, judged.record_gaps) == ([], {(PCI, "c2"): 99.0})


class Host:
    """A host whose VFs have left the machine: everything of a repair but the kernel's part is real."""

    def __init__(self, root: Path) -> None:
        self.node = Node(Sysfs(root / "sys"), Ledger(root / "state"), root / "run", NoVfSettings(), BOOT)
        self.metrics = Metrics()
        self.reconciler = Reconciler(lambda: self.node, self.metrics)
        self.record("u1")

    def record(self, uid: str) -> None:
        path = self.node.ledger.state / "pods" / f"{uid}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("not looked into")

    def entries(self) -> list[str]:
        return sorted(path.name for path in (self.node.ledger.state / "vfs").iterdir())

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"mooring_cni_{name}", labels)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.fixture
def events() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as logs:
        yield logs


def test_an_orphan_is_given_back_and_told_once(host: Host, events: list[Any]) -> None:
    """The log has one event line with pod, uid, PCI address and reason. The count is one; the entry is gone."""
    host.node.ledger.write(ENTRY)
    host.reconciler.reconcile(0.0)
    host.reconciler.reconcile(10.0)
    assert host.entries() == []
    (told,) = events
    assert told == {
        "event": "orphaned vf released",
        "log_level": "info",
        "pod": "ns/p",
        "uid": "u1",
        "pci": PCI,
        "container": "c1",
        "reason": "its network namespace is gone",
    }
    assert host.value("repairs_total", reason="netns_gone") == 1
    assert host.value("repairs_total", reason="other_boot") == 0


def test_a_vf_in_a_calls_hands_is_left_to_it(host: Host, events: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy lock is not a trouble and no event: the reconciler does not wait for it, the next round sees."""
    host.node.ledger.write(replace(ENTRY, phase="taking"))
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        time.sleep(seconds)

    monkeypatch.setattr(locks, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    with hold(host.node.run, PCI, 0):
        host.reconciler.reconcile(0.0)
    assert waits == []
    assert host.entries() == [f"{PCI}.json"]
    assert events == []
    host.reconciler.reconcile(10.0)
    assert host.entries() == []
    assert host.value("repairs_total", reason="killed_add") == 1


class Changing(Ledger):
    """A ledger whose entry changes hands between a look's reading and its repair."""

    reads = 0

    def read(self, pci: str) -> LedgerEntry | None:
        Changing.reads += 1
        if Changing.reads == 2:
            self.write(replace(ENTRY, container="c2"))
        return super().read(pci)


def test_an_entry_that_changed_hands_meanwhile_is_left_alone(tmp_path: Path) -> None:
    """The entry is read again under the lock, and repaired only if it is the one that was judged."""
    host = Host(tmp_path)
    host.node = replace(host.node, ledger=Changing(host.node.ledger.state))
    host.node.ledger.write(ENTRY)
    host.reconciler.reconcile(0.0)
    assert json.loads((tmp_path / "state/vfs" / f"{PCI}.json").read_text())["container"] == "c2"


def test_an_unreadable_entry_is_reported_once_and_never_guessed(host: Host, events: list[Any]) -> None:
    """The entry is not removed or repaired, and reported again only after it was gone.

    Readable ones beside it are repaired.
    """
    folder = host.node.ledger.state / "vfs"
    folder.mkdir()
    for name in (f"{PCI}.json", "not-an-address.json", "0000:3b:01.2.json"):
        (folder / name).write_text(dump_ledger_entry(ENTRY)[:40] if name != "0000:3b:01.2.json" else "")
    (folder / "0000:3b:01.3.json").mkdir()
    other = replace(ENTRY, pci="0000:3b:01.1")
    host.node.ledger.write(other)
    host.reconciler.reconcile(0.0)
    host.reconciler.reconcile(10.0)
    assert len(host.entries()) == 4
    lines = [line for line in events if line["log_level"] == "error"]
    assert sorted(line["entry"] for line in lines) == host.entries()
    assert host.value("unreadable_ledger_entries_total") == 4
    assert host.value("ledger_entries", phase="unreadable") == 4
    assert host.value("repairs_total", reason="netns_gone") == 1


def test_a_repair_that_fails_is_told_once_and_tried_again(host: Host, events: list[Any]) -> None:
    """It counts each time; the line comes once for one reason, not every ten seconds."""
    lost = replace(ENTRY, boot="another", addresses=("10.0.0.2/24",))
    text = json.loads(dump_ledger_entry(lost))
    text["ipam"] = {"ifname": "net1", "conf": {"ipam": {"type": "nonesuch"}}, "path": ["/nonexistent"]}
    path = host.node.ledger.state / "vfs" / f"{PCI}.json"
    path.parent.mkdir()
    path.write_text(json.dumps(text))
    for now in (0.0, 10.0, 20.0):
        host.reconciler.reconcile(now)
    assert host.entries() == [f"{PCI}.json"]
    assert [line["log_level"] for line in events] == ["warning"]
    assert "it is from an earlier boot; ipam plugin 'nonesuch' is not in CNI_PATH '/nonexistent'" in events[0]["reason"]
    assert host.value("repair_failures_total", reason="other_boot") == 3


@pytest.mark.root
def test_a_live_sandbox_keeps_its_vf_as_long_as_its_record_lives(host: Host, events: list[Any]) -> None:
    """This process' own namespace is used as the pod's; without the record the second pass takes the VF back."""
    path = f"/proc/{os.getpid()}/ns/net"
    host.node.ledger.write(replace(ENTRY, netns=Netns(path, netns.cookie_of(path)), original=Original()))
    host.reconciler.reconcile(0.0)
    (host.node.ledger.state / "pods/u1.json").unlink()
    host.reconciler.reconcile(10.0)
    assert (host.entries(), events) == ([f"{PCI}.json"], [])
    assert host.value("held_vfs", pf="eth0") == 1
    host.reconciler.reconcile(20.0)
    assert host.entries() == []
    assert host.value("held_vfs", pf="eth0") is None
    assert host.value("repairs_total", reason="record_gone") == 1


@pytest.mark.root
@pytest.mark.parametrize("lost", [True, False])
def test_a_vf_that_was_made_again_is_not_set_as_the_pod_wanted_the_one_before(tmp_path: Path, lost: bool) -> None:
    """The driver of its PF was reloaded: the host has a VF with its address. In a pod its netdev is not the host's."""
    nic, path = MLX5.host(vfs=2), f"/proc/{os.getpid()}/ns/net"
    build(tmp_path / "sys", nic)
    table = VfTable(tmp_path / "vftable.json")
    table.reset(nic)
    pf, pci = "enp4s0f0", "0000:04:00.2"
    if not lost:
        shutil.rmtree(next((tmp_path / "sys/bus/pci/devices" / pci / "net").iterdir()))
    node = Node(Sysfs(tmp_path / "sys"), Ledger(tmp_path / "state"), tmp_path / "run", table, BOOT)
    space, wanted = Netns(path, netns.cookie_of(path)), VfSettings(max_tx_rate=8000)
    node.ledger.write(replace(ENTRY, pci=pci, pf=pf, netns=space, original=Original(), set=wanted))
    Reconciler(lambda: node, Metrics()).reconcile(0.0)
    entry = node.ledger.read(pci)
    assert entry is not None
    assert (table.read_all(pf)[0].max_tx_rate, entry.reset_at is None) == ((0, True) if lost else (8000, False))


def test_a_look_that_breaks_does_not_end_the_reconciler(host: Host, events: list[Any]) -> None:
    """Any failure is reported, and the next pass runs."""
    ended = threading.Event()
    looks: list[Node] = []

    def node() -> Node:
        looks.append(host.node)
        if len(looks) == 1:
            raise RuntimeError("planted")
        ended.set()
        return host.node

    host.node.ledger.write(ENTRY)
    Reconciler(node, host.metrics).run(ended, 0.01)
    assert [line["event"] for line in events] == [
        "reconciling the ledger failed unexpectedly",
        "orphaned vf released",
    ]


def test_calls_and_repairs_are_served_to_prometheus(host: Host) -> None:
    """Calls are counted by command and code, with a latency histogram; invented commands share one label."""
    host.metrics.call("ADD", 0, 0.03)
    host.metrics.call("ADD", 11, 5.1)
    host.metrics.call("x" * 100, 4, 0.001)
    host.reconciler.reconcile(0.0)
    assert host.value("calls_total", command="ADD", code="11") == 1
    assert host.value("calls_total", command="other", code="4") == 1
    assert host.value("call_duration_seconds_count", command="ADD") == 2
    assert host.value("call_duration_seconds_bucket", command="ADD", le="0.05") == 1
    assert [host.value("ledger_entries", phase=phase) for phase in get_args(Phase)] == [0, 0, 0]


def test_a_metrics_address_without_a_port_is_refused(host: Host) -> None:
    """The error names the address, before anything listens."""
    with pytest.raises(ConfigError, match="'localhost' is not host:port"):
        host.metrics.serve("localhost", lambda: b"")


def metrics_at(address: str) -> dict[str, float]:
    """Scrape as Prometheus does; an empty result while nothing answers yet."""
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
            families = text_string_to_metric_families(answer.read().decode())
            samples = itertools.chain(*(family.samples for family in families))
            return {f"{sample.name}{sorted(sample.labels.values())}": sample.value for sample in samples}
    except urllib.error.URLError:
        return {}


def test_the_warm_server_counts_calls_and_looks_from_its_start_on(tmp_path: Path) -> None:
    """The whole program, as a runtime and Prometheus meet it: a call through the forwarder, a scrape, SIGTERM."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    (tmp_path / "state/vfs").mkdir(parents=True)
    (tmp_path / f"state/vfs/{PCI}.json").write_text("{")
    folders = [f"--{name}={tmp_path / name}" for name in ("state", "run", "sysfs")]
    flags = ["--socket", str(tmp_path / "cni.sock"), "--metrics-addr", address, *folders]
    server = subprocess.Popen([sys.executable, "-m", "cni", "serve", *flags], stderr=subprocess.DEVNULL)
    try:
        unreadable = "mooring_cni_unreadable_ledger_entries_total[]"
        wait_until(lambda: unreadable in (found := metrics_at(address)) and found[LOOKED])
        assert metrics_at(address)[unreadable] == 1
        forwarder = tmp_path / "mooring-cni"
        forwarder.write_text(render(str(tmp_path / "cni.sock"), ["/bin/false"]))
        for command in ("VERSION", "VERSION", "NONSENSE"):
            environment = {"CNI_COMMAND": command, "PATH": "/bin"}
            asked = [sys.executable, "-ISE", str(forwarder)]
            subprocess.run(asked, input=b'{"cniVersion":"1.0.0"}', env=environment, capture_output=True, check=False)
        wait_until(lambda: metrics_at(address).get("mooring_cni_calls_total['4', 'other']"))
        found = metrics_at(address)
        assert found["mooring_cni_calls_total['0', 'VERSION']"] == 2
        assert found["mooring_cni_calls_total['4', 'other']"] == 1
        assert found["mooring_cni_call_duration_seconds_count['VERSION']"] == 2
    finally:
        server.terminate()
        assert server.wait(90) == 0


def test_an_entry_whose_namespace_cannot_be_asked_stops_no_other(tmp_path: Path) -> None:
    """A path that no system call takes: its VF counts as a pod's, and the VF of another entry is given back."""
    orphan = replace(ENTRY, boot="another")
    odd = replace(ENTRY, pci="0000:3b:01.1", vf=1, netns=Netns("/run/netns/\0odd", 1))
    node = Node(Sysfs(tmp_path / "sys"), Ledger(tmp_path), tmp_path / "run", NoVfSettings(), BOOT)
    node.ledger.write(orphan)
    node.ledger.write(odd)
    Reconciler(lambda: node, Metrics()).reconcile(0.0)
    assert [path.stem for path in (tmp_path / "vfs").iterdir()] == [odd.pci]
