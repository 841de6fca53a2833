"""Events about VFs of pods, from the ledger."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from advertiser.formats.vf_events import (
    LostVf,
    PortFault,
    ResetVf,
    lost_vfs,
    missing_devices,
    port_faults,
    reset_vfs,
)
from advertiser.inventory.facts import Host, PciFunction, Vf
from mooring.annotations.inventory import Inventory
from mooring.records.ledger import LedgerEntry, Netns, Original
from mooring.records.vf_faults import InactivePort, VfFaults
from mooring.records.without_devices import WithoutDevices

PCI, AT = "0000:04:00.2", "2026-11-22T14:00:00Z"


def host(reset_at: str | None) -> Host:
    netns = Netns("/run/netns/x", 1)
    entry = LedgerEntry(
        PCI, "enp4s0f0", 3, "held", "b", "8C2F", "ns/train", "c", "net1", netns, Original(), reset_at=reset_at
    )
    return Host("b", (), ledger={PCI: entry, "0000:04:00.3": None})


@pytest.mark.parametrize(
    ("reset_at", "now", "reported"),
    [
        (AT, "14:59:59", True),
        (AT, "15:00:01", False),
        (None, "14:00:00", False),
        ("2026-99-99T00:00:00Z", "14:00:00", False),
    ],
)
def test_a_reset_is_reported_for_an_hour(reset_at: str | None, now: str, reported: bool) -> None:
    """An advertiser that starts a day later must not write it as news: the API server has forgotten the first Event."""
    found = list(reset_vfs(host(reset_at), datetime.fromisoformat(f"2026-11-22T{now}").replace(tzinfo=UTC)))
    assert found == ([ResetVf("ns/train", "8C2F", "enp4s0f0", 3, PCI, AT)] if reported else [])


def test_each_reset_has_a_name_of_its_own_and_the_time_at_which_it_was() -> None:
    """The same reset is the same Event, whichever advertiser writes it, and never that of the lost VF."""
    first = ResetVf("ns/train", "8C2F", "enp4s0f0", 3, PCI, AT).event("n1", "later")
    assert first == ResetVf("ns/train", "8C2F", "enp4s0f0", 3, PCI, AT).event("n1", "much later")
    assert first["metadata"] == {"name": "train.vf-reset.20261122140000.8c2f.0000-04-00.2", "namespace": "ns"}
    assert (first["reason"], first["lastTimestamp"], first["type"]) == ("VfSettingsReset", AT, "Warning")
    again = ResetVf("ns/train", "8C2F", "enp4s0f0", 3, PCI, "2026-11-22T14:00:10Z").event("n1", "")
    lost = LostVf("ns/train", "8C2F", "enp4s0f0", 3, PCI).event("n1", "")
    assert len({str(each["metadata"]) for each in (first, again, lost)}) == 3


def test_a_container_without_devices_has_one_event_and_another_when_it_is_stopped() -> None:
    """By its own id: a container that the kubelet makes later is another one. The text says what helps."""
    found = WithoutDevices("ns/train", "8C2F", "main", "5F0E/..", (PCI,))
    (one,) = missing_devices(Host("b", (), without_devices=frozenset({found})))
    first = one.event("n1", AT)
    assert first["metadata"] == {"name": "train.vf-devices.8c2f.5f0e", "namespace": "ns"}
    assert (first["reason"], first["type"], one.uid, one.pod) == ("VfDevicesMissing", "Warning", "8C2F", "ns/train")
    assert str(first["message"]).endswith("rebound since; delete the pod to get them")
    (more,) = missing_devices(Host("b", (), without_devices=frozenset({replace(found, gpus=("0000:1b:00.0",))})))
    assert f"without the devices of VF {PCI}; GPU 0000:1b:00.0: " in str(more.event("n1", AT)["message"])
    (stopped,) = missing_devices(Host("b", (), without_devices=frozenset({replace(found, stopped=True)})))
    assert stopped != one
    assert stopped.event("n1", AT)["metadata"] == {"name": "train.vf-devices-stopped.8c2f.5f0e", "namespace": "ns"}


@pytest.mark.parametrize(
    ("changed", "exists", "unsettled", "lost"),
    [
        ({}, False, False, True),
        ({}, True, False, False),
        ({}, False, True, False),
        ({"phase": "returning"}, False, False, False),
        ({"boot": "an-earlier-one"}, False, False, False),
    ],
)
def test_a_pod_whose_vf_no_longer_exists_has_lost_it(
    changed: dict[str, Any], exists: bool, unsettled: bool, lost: bool
) -> None:
    """Its PF has no VFs then, and is not on offer at all. Once the VF is there again, the Event is the same one."""
    before = host(None)
    entry = before.ledger[PCI]
    assert entry is not None
    vfs = {0: Vf(PCI, exists=True)} if exists else {}
    functions = (PciFunction("0000:04:00.0", numvfs="0", vfs=vfs),)
    now = replace(before, functions=functions, ledger={PCI: replace(entry, **changed)})
    now = replace(now, unsettled=frozenset({PCI})) if unsettled else now
    found = list(lost_vfs(Inventory("b", ()), now))
    assert found == ([LostVf("ns/train", "8C2F", "enp4s0f0", 3, PCI, gone=True)] if lost else [])
    for one in found:
        event, back = one.event("n1", AT), replace(one, gone=False).event("n1", AT)
        assert event["reason"] == "VfLost"
        assert "(0000:04:00.2) no longer exists, for example because its PF's driver was reloaded: " in str(
            event["message"]
        )
        assert event["metadata"] == back["metadata"]


def test_a_port_that_is_not_active_has_one_event() -> None:
    """Whatever state it goes through meanwhile."""
    port = InactivePort("ns/train", "8C2F", "ib0", 3, PCI, "INIT")
    (fault,) = port_faults(Host("b", (), vf_faults=VfFaults(inactive_ports=(port,))))
    first = fault.event("n1", AT)
    assert first["metadata"] == {"name": "train.vf-port.8c2f.0000-04-00.2", "namespace": "ns"}
    assert (first["reason"], first["type"]) == ("VfPortInactive", "Warning")
    assert str(first["message"]).startswith(f"the InfiniBand port of VF 3 of ib0 ({PCI}) is INIT 30 s after")
    again = PortFault(replace(port, state="DOWN")).event("n1", AT)
    assert again["metadata"] == first["metadata"]
    assert list(port_faults(Host("b", ()))) == []
