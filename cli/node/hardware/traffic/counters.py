"""Counters of a VF beside traffic of a known size: what its ports, and its PF, counted of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cli.node.hardware.commands import attempt, text_of
from cli.node.hardware.traffic.endpoints import Endpoint
from cli.node.hardware.vf_life import Subject
from cni.kernel.counters.vf_statistics import vf_statistics

# Octets of one unit (the kernel's Documentation/ABI/stable/sysfs-class-infiniband).
_OCTETS = 4
# Headers and acknowledgements come on top of the data: 7 % at an MTU of 1024.
_MOST_PERCENT = 115
SENT, RECEIVED, PF_SENT = "port-sent", "port-received", "pf-sent"


@dataclass(frozen=True, slots=True)
class CounterGrowth:
    """What each counter grew by while ``sent`` bytes of data were sent, in bytes."""

    sent: int
    grown: Mapping[str, int]

    def percents(self) -> dict[str, object]:
        found = {f"{name}-percent": round(100 * grown / self.sent) for name, grown in self.grown.items()}
        return {"bytes": self.sent, **found}

    def fault(self) -> str | None:
        """Return what is wrong, None if the ports' counters are right; without any of a port, if the PF's is.

        A PF need not count RDMA traffic; a port does.
        """
        ports = [name for name in (SENT, RECEIVED) if name in self.grown]
        wrong = [name for name in ports or (PF_SENT,) if not self._is_right(name)]
        return f"not the traffic that was sent: {', '.join(wrong)}" if wrong else None

    def _is_right(self, name: str) -> bool:
        return self.sent <= self.grown.get(name, 0) <= self.sent * _MOST_PERCENT / 100


def read_counters(subject: Subject, sender: Endpoint, receiver: Endpoint | None) -> dict[str, int]:
    """Return the counters that there are, in bytes; ``receiver`` None is on another host."""
    found = {SENT: _of_port(sender, "port_xmit_data")}
    if receiver is not None:
        found[RECEIVED] = _of_port(receiver, "port_rcv_data")
    of_vf = vf_statistics(subject.target.pf.name).get(subject.vf.index, {})
    found[PF_SENT] = of_vf.get("tx_bytes")
    return {name: value for name, value in found.items() if value is not None}


def _of_port(end: Endpoint, name: str) -> int | None:
    """Read a port's counter: in the pod in exclusive mode, on the host in shared mode."""
    path = f"/sys/class/infiniband/{end.rdma}/ports/1/counters/{name}"
    text = attempt((*end.pod.inside, "cat", path)) or text_of(Path(path))
    return int(text) * _OCTETS if text is not None and text.isdigit() else None
