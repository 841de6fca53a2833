"""Whole FPGAs as a constraint of Mooring: which FPGAs a pod gets, and what that asks of its VFs.

The FPGAs beside one interface lie under one switch, and the interface's VF on a PF there. A proposal gives each such
interface a switch, those with the fewest free FPGAs first, so that whole switches stay free; the PFs under it narrow
the VFs. Every way to choose the switches is proposed, so that a placement is found if there is one.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from mooring_fpga.inventory import Fpga, read_fpgas
from mooring_fpga.request import Request, read_fpga_request
from scheduler.constraints.protocol import VFS, Beside, NodeSide, PodSide, Proposal, Units, Unmet

_FEW = "not enough free FPGAs"
_APART = "not enough free FPGAs under one PCIe switch with a PF"
Switch = tuple[str, ...]


class Fpgas:
    """The kind ``fpga``: a unit is an FPGA's PCI address."""

    def read_request(self, pod: PodSide) -> Request | None:
        return read_fpga_request(pod.text, pod.interfaces) or None

    def read_inventory(self, node: NodeSide) -> dict[str, Fpga]:
        return read_fpgas(node.text, node.pfs)

    def judge(self, request: Request, left: Units[Fpga]) -> int | str:
        """Prefer nodes where the fewest FPGAs stay free."""
        if len(left.free) < len(request):
            return _FEW
        return 100 * (left.total - len(left.free) + len(request)) // left.total

    def place(self, request: Request, left: Units[Fpga], beside: Beside) -> Iterator[Proposal]:
        wanted = Counter(interface for interface in request if interface is not None)
        free = _by_switch(left)
        ways = _switches(
            wanted.most_common(), {switch: len(pcis) for switch, pcis in free.items() if _near(left, pcis)}
        )
        found = False
        for way in ways:
            found = True
            yield _proposal(request, way, left)
        if not found:
            raise Unmet(_APART)


def _by_switch(left: Units[Fpga]) -> dict[Switch, list[str]]:
    """Return the free FPGAs under each switch, those with the fewest first."""
    found: dict[Switch, list[str]] = {}
    for pci, fpga in left.free:
        found.setdefault(fpga.switch, []).append(pci)
    return dict(sorted(found.items(), key=lambda entry: (len(entry[1]), entry[0])))


def _near(left: Units[Fpga], pcis: Sequence[str]) -> frozenset[str]:
    return next(fpga.pfs for pci, fpga in left.free if pci == pcis[0])


def _switches(wanted: Sequence[tuple[int, int]], free: dict[Switch, int]) -> Iterator[dict[int, Switch]]:
    """Yield each way to give the interfaces a switch with as many free FPGAs as each wants."""
    if not wanted:
        yield {}
        return
    (interface, count), *rest = wanted
    for switch in free:
        if free[switch] >= count:
            for others in _switches(rest, free | {switch: free[switch] - count}):
                yield {interface: switch, **others}


def _proposal(request: Request, switches: dict[int, Switch], left: Units[Fpga]) -> Proposal:
    free = _by_switch(left)
    near = {interface: _near(left, free[switch]) for interface, switch in switches.items()}
    taken = [None if interface is None else free[switches[interface]].pop(0) for interface in request]
    # What may lie anywhere takes what the others leave, again from the switches with the fewest.
    rest = (pci for pcis in sorted(free.values(), key=len) for pci in pcis)
    return Proposal(tuple(pci or next(rest) for pci in taken), narrows={VFS: near})
