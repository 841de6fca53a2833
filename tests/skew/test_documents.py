"""Annotations and records of this release, read by the release before it, and the other way.

Each value here has every field that this release writes. A field that the earlier release does not know must be one
that it ignores: it rejects an unknown field where a field says what is to be applied.
"""

import dataclasses
import json
from dataclasses import MISSING, dataclass, replace
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

import pytest

from mooring.annotations.assignment import AssignedVf, Assignment, PodInterface, dump_assignment
from mooring.annotations.inventory import Inventory, Out, Pf
from mooring.annotations.pf_terms import Access, Allow
from mooring.annotations.rates import PodRates, RatesInForce, VfRates
from mooring.gpu.assignment import GpuAssignment, details_of
from mooring.gpu.inventory import Gpu, GpuInventory, GpuOut
from mooring.indexes import Indexes
from mooring.nic.settings import VfSettings
from mooring.records.ledger import Attachment, Ipam, LedgerEntry, Netns, Original
from mooring.records.node_check import Finding, NodeCheck
from mooring.records.node_offer import PfOffer
from mooring.records.pod_record import PodRecord
from mooring.records.rates_exchange import HandedOverRates, RatesState, Refusal
from mooring.records.rates_record import RatesRecord
from mooring.records.without_devices import WithoutDevices
from tests.skew.earlier import Earlier

VF, PF, GPU = "0000:04:00.2", "0000:04:00.0", "0000:1b:00.0"
SETTINGS = VfSettings(1000, 2000, "02:00:00:00:00:01", 100, 3, True, True, "enable", "00:11:22:33:44:55:66:77")
GPUS = GpuAssignment((GPU,), ("GPU-1",), {"main": (GPU,)}, {GPU: 0})
ASSIGNED = Assignment(
    "u1",
    "n1",
    (AssignedVf("enp4s0f0", 1, VF, "ethernet", "rail0", SETTINGS, PodInterface("net7", ("main",), True)),),
    {"gpu": {"units": [GPU], **details_of(GPUS)}},
)
ALLOW = Allow(Indexes.parse("100-199"), True, True, True, True)
INVENTORY_PF = Pf(
    name="enp4s0f0",
    pci=PF,
    link="ethernet",
    network="rail0",
    mbps=100_000,
    offer_mbps=90_000,
    up=True,
    vfs=Indexes.parse("0-9"),
    vf0=VF,
    stride=2,
    rdma="mlx5_0",
    numa=1,
    pcie=("0000:00:01.0",),
    can=frozenset({"vlan"}),
    allow=ALLOW,
    out=(Out(Indexes.parse("7"), "drained", 100),),
    port="p0",
    vlan=7,
    vf_netdevs=True,
    tested={"min_tx_rate": "shown"},
    access=Access(("team-a", "ml-*"), 50, 2),
)
INVENTORY = Inventory("b1", (INVENTORY_PF,), {"mooring-cni": "0.2.0"}, True, frozenset({"runc"}))
ORIGINAL = Original(
    "eth2", ("enp4s0f0v0",), 1500, "02:00:00:00:00:02", True, SETTINGS, (4711,), 4, 1000, VF, {"xdp": "", "alias": "61"}
)
ENTRY = LedgerEntry(
    pci=VF,
    pf="enp4s0f0",
    vf=1,
    phase="returning",
    boot="b1",
    uid="u1",
    pod="ns/p",
    container="c1",
    ifname="net1",
    netns=Netns("/run/netns/pod", 4711),
    original=ORIGINAL,
    set=SETTINGS,
    addresses=("10.0.0.2/24",),
    ipam=Ipam("net1", {"name": "net", "ipam": {"type": "host-local"}}, ("/opt/cni/bin",)),
    rdma="mlx5_5",
    attachment=Attachment("net", "net1", "rail0"),
    share=True,
    reset_at="2026-11-22T14:00:00Z",
    deleted=True,
    rdma_only=True,
    in_doubt=True,
)
RATES = PodRates("u1", "n1", 2, (VfRates(1000, 2000),), (1500,))
OFFER = PfOffer(10, False, "rail0", Indexes.parse("0-1"), 5, ALLOW, 7, True, ("team-a",))
CHECK = NodeCheck(datetime(2026, 11, 22, 14, tzinfo=UTC), "bypass", "on", (Finding("kubelet", "/etc/x", "differs"),))
LACKING = WithoutDevices("ns/p", "u1", "main", "c1", (VF,), True, (GPU,))


@dataclass(frozen=True)
class Document:
    """A value, the functions that read and write it, and what the earlier release understands of it, if not all."""

    module: str
    read: str
    dump: str
    value: Any
    understood: Any = None
    name: str = ""


DOCUMENTS = {
    "inventory": Document(
        "mooring.annotations.inventory",
        "read_inventory",
        "dump_inventory",
        INVENTORY,
        replace(INVENTORY, handlers=None, pfs=(replace(INVENTORY_PF, tested={}, access=Access()),)),
    ),
    "assignment": Document("mooring.annotations.assignment", "read_assignment", "dump_assignment", ASSIGNED),
    "rates": Document("mooring.annotations.rates", "read_rates", "dump_rates", RATES),
    "rates in force": Document(
        "mooring.annotations.rates", "read_rates_in_force", "dump_rates_in_force", RatesInForce({"u1": 2})
    ),
    "GPU inventory": Document(
        "mooring.gpu.inventory",
        "read_gpu_inventory",
        "dump_gpu_inventory",
        GpuInventory(
            (Gpu(GPU, "GPU-1", "nvidia", "H200", 80_000, 1, ("0000:00:01.0",), 1),), (GpuOut("0000:1c:00.0", "x"),)
        ),
    ),
    "ledger entry": Document(
        "mooring.records.ledger",
        "read_ledger_entry",
        "dump_ledger_entry",
        ENTRY,
        # A note beside the entry.
        replace(ENTRY, in_doubt=False),
        f"vfs/{VF}.json",
    ),
    "pod record": Document(
        "mooring.records.pod_record",
        "read_pod_record",
        "dump_pod_record",
        PodRecord("ns/p", ASSIGNED),
        name="pods/u1.json",
    ),
    "rates record": Document(
        "mooring.records.rates_record",
        "read_rates_record",
        "dump_rates_record",
        RatesRecord("ns/p", RATES),
        name="rates/u1.json",
    ),
    "rates handed over": Document(
        "mooring.records.rates_exchange",
        "read_handed_over",
        "dump_handed_over",
        HandedOverRates("{}", "s"),
        name="u1.json",
    ),
    "rates state": Document(
        "mooring.records.rates_exchange",
        "read_state",
        "dump_state",
        RatesState("ns/p", 2, True, Refusal(VF, "EINVAL")),
        name="u1.json",
    ),
    "node's offer": Document(
        "mooring.records.node_offer",
        "read_node_offer",
        "dump_node_offer",
        {PF: OFFER},
        {PF: replace(OFFER, namespaces=())},
    ),
    "shared ports": Document(
        "mooring.records.shared_ports", "read_shared_ports", "dump_shared_ports", ((PF, "0000:05:00.0"),)
    ),
    "node check": Document("mooring.records.node_check", "read_node_check", "dump_node_check", CHECK),
    "containers without devices": Document(
        "mooring.records.without_devices", "read_without_devices", "dump_without_devices", frozenset({LACKING})
    ),
}
READ_AND_WRITE = """
import importlib, json, sys
written = {}
for key, (module, read, dump, text, *name) in json.load(sys.stdin).items():
    module = importlib.import_module(module)
    try:
        written[key] = getattr(module, dump)(getattr(module, read)(text, *name))
    except Exception as refused:
        written[key] = f"{type(refused).__name__}: {refused}"
json.dump(written, sys.stdout)
"""


@pytest.fixture(scope="module")
def written_again(earlier: Earlier) -> dict[str, str]:
    """What the earlier release writes of each document of this one; an error's text for one that it rejects."""
    given = {
        key: (each.module, each.read, each.dump, written(each), *([each.name] if each.name else []))
        for key, each in DOCUMENTS.items()
    }
    answer: dict[str, str] = json.loads(earlier.run(READ_AND_WRITE, given=json.dumps(given)))
    return answer


def written(document: Document) -> str:
    text: str = getattr(import_module(document.module), document.dump)(document.value)
    return text


def unset(value: Any) -> list[str]:
    """Return the fields that have their defaults in a value and in the values below it."""
    if isinstance(value, list | tuple | frozenset):
        return [name for item in value for name in unset(item)]
    if isinstance(value, dict):
        return [name for item in value.values() for name in unset(item)]
    if not dataclasses.is_dataclass(value) or isinstance(value, type | Indexes):
        return []
    found = []
    for field in dataclasses.fields(value):
        own = getattr(value, field.name)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        found += [f"{type(value).__name__}.{field.name}"] if own == default else unset(own)
    return found


@pytest.mark.parametrize("key", DOCUMENTS)
def test_the_earlier_release_reads_what_this_one_writes(key: str, written_again: dict[str, str]) -> None:
    """It takes every field, or ignores it; what it writes of them is read here as the same."""
    document = DOCUMENTS[key]
    assert unset(document.value) == []
    text = written_again[key]
    assert text.startswith("{"), text
    read = getattr(import_module(document.module), document.read)
    again = read(text, document.name) if document.name else read(text)
    assert again == (document.value if document.understood is None else document.understood)


READ_GPUS = """
import json, sys
from mooring.annotations.assignment import read_assignment
from mooring.gpu.assignment import assigned_gpus, details_of
json.dump(details_of(assigned_gpus(read_assignment(sys.stdin.read()))), sys.stdout)
"""


def test_the_earlier_release_reads_the_gpus_of_an_assignment(earlier: Earlier) -> None:
    """NodeRelease keeps no field of `ext.gpu` back, so there must be none that an earlier shim rejects."""
    assert unset(GPUS) == []
    text = dump_assignment(ASSIGNED)
    assert json.loads(earlier.run(READ_GPUS, given=text)) == details_of(GPUS)
