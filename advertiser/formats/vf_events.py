"""Build the Events on a pod about its VFs: a VF is lost, its settings were reset, devices are missing, rates rejected.

From them the pod's owner learns why the network is gone, why a VF had no limits for some seconds, why RDMA fails, or
why a changed rate is not in force.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from advertiser.inventory.facts import Host
from advertiser.inventory.vf_state import should_be_away
from mooring.annotations.inventory import LOST, Inventory
from mooring.records.rates_exchange import RatesState, Refusal
from mooring.records.vf_faults import InactivePort
from mooring.records.without_devices import WithoutDevices

LOST_REASON, RESET_REASON, DEVICES_REASON = "VfLost", "VfSettingsReset", "VfDevicesMissing"
RATES_REASON, PORT_REASON = "VfRatesRefused", "VfPortInactive"
_COMPONENT = "mooring-advertiser"
_LONGEST_NAME = 150
# events.k8s.io allows 1,024 characters of an Event (NoteLengthLimit in pkg/apis/core/validation/events.go).
_LONGEST_WHY = 800
# An API server keeps Events for one hour (--event-ttl), so older resets need no Event.
_REPORTED = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class LostVf:
    """A VF that a pod holds by the ledger, but that is on the host, or ``gone``; ``pod`` is namespace/name."""

    pod: str
    uid: str
    pf: str
    vf: int
    pci: str
    gone: bool = False

    @property
    def reason(self) -> str:
        return LOST_REASON

    def event(self, node: str, now: str) -> dict[str, object]:
        """Return the Event at the time ``now``."""
        loss = (
            "no longer exists, for example because its PF's driver was reloaded"
            if self.gone
            else "is back in the host's network namespace although this pod holds it"
        )
        message = (
            f"VF {self.vf} of {self.pf} ({self.pci}) {loss}: the pod has lost that VF; delete the pod to get another VF"
        )
        name = f"vf-lost.{self.uid[:36].lower()}.{self.pci.replace(':', '-')}"
        return _event(self.pod, self.uid, name, node, self.reason, message, now)


@dataclass(frozen=True, slots=True)
class ResetVf:
    """A VF whose settings its PF lost, and which mooring-cni set again at the time ``at``."""

    pod: str
    uid: str
    pf: str
    vf: int
    pci: str
    at: str

    @property
    def reason(self) -> str:
        return RESET_REASON

    def event(self, node: str, _now: str) -> dict[str, object]:
        """Return the Event, with the time of the reset."""
        message = (
            f"{self.pf} lost settings of VF {self.vf} ({self.pci}), for example because its driver was reloaded or its "
            "firmware reset; mooring-cni has set them again"
        )
        digits = "".join(filter(str.isdigit, self.at))
        name = f"vf-reset.{digits}.{self.uid[:36].lower()}.{self.pci.replace(':', '-')}"
        return _event(self.pod, self.uid, name, node, self.reason, message, self.at)


@dataclass(frozen=True, slots=True)
class MissingDevices:
    """A container without devices of its pod's VFs or GPUs, as reported by the CRI shim."""

    found: WithoutDevices

    @property
    def pod(self) -> str:
        return self.found.pod

    @property
    def uid(self) -> str:
        return self.found.uid

    @property
    def pci(self) -> str:
        return ",".join((*self.found.vfs, *self.found.gpus))

    @property
    def reason(self) -> str:
        return DEVICES_REASON

    def event(self, node: str, now: str) -> dict[str, object]:
        """Return the Event at the time ``now``; a container gets one, and another one when the shim stops it."""
        found = self.found
        then = "it is stopped, and the kubelet restarts it" if found.stopped else "delete the pod to get them"
        message = (
            f"container {found.container} runs without the devices of {found.summary}: the kubelet started it without "
            f"mooring-cri-shim, or a driver was rebound since; {then}"
        )
        # Container ids are hexadecimal; from any other id only the characters that a name can have are kept.
        short = "".join(letter for letter in found.id.lower() if letter.isascii() and letter.isalnum())[:20]
        name = f"vf-devices{'-stopped' if found.stopped else ''}.{found.uid[:36].lower()}.{short or 'x'}"
        return _event(found.pod, found.uid, name, node, self.reason, message, now)


@dataclass(frozen=True, slots=True)
class RefusedRates:
    """A generation of a pod's changed rates that could not be set on one of its VFs."""

    pod: str
    uid: str
    generation: int
    refused: Refusal

    @property
    def pci(self) -> str:
        return self.refused.pci

    @property
    def reason(self) -> str:
        return RATES_REASON

    def event(self, node: str, now: str) -> dict[str, object]:
        """Return the Event at the time ``now``; a generation gets one for each VF."""
        message = (
            f"rates of generation {self.generation} are not in force: {self.refused.why[:_LONGEST_WHY]}; mooring-cni "
            "retries, and until then the larger of the old and new rates is reserved"
        )
        name = f"vf-rates.{self.generation}.{self.uid[:36].lower()}.{self.pci.replace(':', '-')}"
        return _event(self.pod, self.uid, name, node, self.reason, message, now)


@dataclass(frozen=True, slots=True)
class PortFault:
    """A pod's InfiniBand VF whose port has not become active, as the CNI server reports."""

    port: InactivePort

    @property
    def pod(self) -> str:
        return self.port.pod

    @property
    def uid(self) -> str:
        return self.port.uid

    @property
    def pci(self) -> str:
        return self.port.pci

    @property
    def reason(self) -> str:
        return PORT_REASON

    def event(self, node: str, now: str) -> dict[str, object]:
        """Return the Event at the time ``now``; a pod has one for each VF."""
        port = self.port
        message = (
            f"the InfiniBand port of VF {port.vf} of {port.pf} ({port.pci}) is {port.state} 30 s after the pod got it: "
            "RDMA does not work. Check the PF's port, the VF's GUID, and that the subnet manager supports virtual ports"
        )
        name = f"vf-port.{port.uid[:36].lower()}.{port.pci.replace(':', '-')}"
        return _event(port.pod, port.uid, name, node, self.reason, message, now)


def port_faults(host: Host) -> Iterator[PortFault]:
    """Yield the VFs of pods whose port is not active."""
    if host.vf_faults is not None:
        yield from map(PortFault, host.vf_faults.inactive_ports)


def refused_rates(states: Mapping[str, RatesState]) -> Iterator[RefusedRates]:
    """Yield the changed rates that could not be set; ``states`` are the CNI server's reports by pod uid."""
    for uid, state in states.items():
        if state.refusal is not None:
            yield RefusedRates(state.pod, uid, state.generation, state.refusal)


def missing_devices(host: Host) -> Iterator[MissingDevices]:
    """Yield the containers that lack devices."""
    yield from map(MissingDevices, host.without_devices)


def lost_vfs(inventory: Inventory, host: Host) -> Iterator[LostVf]:
    """Yield the pods' VFs that the inventory marks as lost, and those that no longer exist.

    A VF never disappears temporarily: a rebind of its driver keeps the PCI function.
    """
    yield from _gone_vfs(host)
    for pf in inventory.pfs:
        for out in pf.out:
            for index in out.vfs if out.why.startswith(LOST) else ():
                pci = pf.vf_pci(index)
                entry = host.ledger.get(pci)
                if entry is not None:
                    yield LostVf(entry.pod, entry.uid, pf.name, index, pci)


def _gone_vfs(host: Host) -> Iterator[LostVf]:
    addresses = {vf.address for function in host.functions for vf in function.vfs.values() if vf.exists}
    for pci, entry in host.ledger.items():
        if entry is None or pci in addresses or pci in host.unsettled or not should_be_away(entry, host):
            continue
        yield LostVf(entry.pod, entry.uid, entry.pf, entry.vf, pci, gone=True)


def reset_vfs(host: Host, now: datetime) -> Iterator[ResetVf]:
    """Yield the VFs whose settings were set again within the last hour before ``now``."""
    for entry in host.ledger.values():
        if entry is not None and entry.reset_at is not None and _is_recent(entry.reset_at, now):
            yield ResetVf(entry.pod, entry.uid, entry.pf, entry.vf, entry.pci, entry.reset_at)


def _is_recent(at: str, now: datetime) -> bool:
    try:
        return now - datetime.strptime(at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC) < _REPORTED
    except ValueError:
        return False


def _event(pod: str, uid: str, name: str, node: str, reason: str, message: str, time: str) -> dict[str, object]:
    namespace, _, pod_name = pod.partition("/")
    # The name must be a DNS subdomain: no part of it may end with a dash.
    short = pod_name[:_LONGEST_NAME].rstrip("-.")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{short}.{name}", "namespace": namespace},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod_name, "uid": uid},
        "reason": reason,
        "message": message,
        "type": "Warning",
        "source": {"component": _COMPONENT, "host": node},
        "reportingComponent": _COMPONENT,
        "reportingInstance": node,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }
