"""What is done to an mlx5 PF and its VFs in a case, and what is seen after each step, as values that travel as JSON.

A case is a list of steps, and starts on a PF whose `FIRST_VFS` VFs were just made. The same cases run on devcluster's
table of VF settings (`bench.nic.on_table`) and on the vendor's driver (`bench.nic.on_driver`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mooring.nic.settings import VfSettings

TOTAL_VFS = 8
FIRST_VFS = 3
Event = Literal["write", "numvfs", "reload", "bind"]


@dataclass(frozen=True, slots=True)
class Step:
    """One operation: settings are written to VF ``number``, or ``number`` VFs are made, or a driver is bound.

    ``refused`` names the firmware's command that is refused meanwhile, as often as the driver sends it.
    """

    event: Event
    number: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    refused: str | None = None

    def __str__(self) -> str:
        values = " ".join(f"{name} {value}" for name, value in self.settings.items())
        what = f"vf {self.number} {values}" if self.event == "write" else f"{self.event} {self.number}"
        return f"{what} (the firmware refuses {self.refused})" if self.refused else what


@dataclass(frozen=True, slots=True)
class Case:
    """Steps, by a name that says what they are about."""

    name: str
    steps: tuple[Step, ...]


# What is seen after a step, by a name of it: the answer ("ok" or an errno's name), and what each VF has.
Seen = dict[str, Any]


def write(vf: int, refused: str | None = None, **settings: Any) -> Step:
    return Step("write", vf, settings, refused)


def seen(answer: str, vfs: Iterable[tuple[VfSettings, str, bool, str]], bound: tuple[str, str] | None) -> Seen:
    """Describe the outcome of a step.

    Each VF has its settings, its weight ("outside" without a scheduling element), whether the NIC drops frames with a
    foreign source MAC, and the node GUID that its driver reads when it is bound. ``bound`` is what the driver that a
    step bound has read: the netdev's MAC ("own" if the driver chose it), or IPoIB's GUID, and the node GUID.
    """
    found: Seen = {"answer": answer} | ({} if bound is None else {"netdev": bound[0], "RDMA device": bound[1]})
    for number, (settings, weight, checks_macs, node_guid) in enumerate(vfs):
        values = settings.to_fields() | {"weight": weight, "source MACs checked": checks_macs, "node GUID": node_guid}
        found |= {f"vf {number} {name}": value for name, value in values.items()}
    return found


def cases_to_json(cases: Iterable[Case]) -> list[list[Any]]:
    """Return the steps alone: results come back in the same order."""
    return [[[step.event, step.number, dict(step.settings), step.refused] for step in case.steps] for case in cases]


def steps_from_json(document: list[Any]) -> list[Step]:
    return [Step(*values) for values in document]
