"""PFs that share a port: a cable that appears as several PFs is offered once.

The inventory gives such PFs one ``port`` (socket direct, multi-host, several PCI links to one NIC). Together they may
reserve the smallest of their offers, so that Σ min_tx_rate never exceeds what the port offers, on whichever of its PFs
the VFs are. A PF whose rate is unknown, because it is down, offers nothing itself and does not limit the others.

A value of `SharedPorts` has for each PF the index of the first PF of its port. It is empty for a node where no two PFs
share one.
"""

from collections.abc import Sequence

from mooring.annotations.inventory import Pf
from scheduler.placement.bin_packing import SharedPorts


def shared_ports_of(pfs: tuple[Pf, ...]) -> SharedPorts:
    """Return the port of each PF; empty if no two of them share one."""
    first: dict[str, int] = {}
    ports = tuple(index if pf.port is None else first.setdefault(pf.port, index) for index, pf in enumerate(pfs))
    return ports if len(set(ports)) < len(pfs) else ()


def offers_of(pfs: Sequence[Pf], ports: SharedPorts) -> list[int]:
    """Return the Mb/s that each PF may reserve; PFs that share a port share its Mb/s."""
    offers = [pf.offer_mbps for pf in pfs]
    for port in set(ports):
        members = [index for index, own in enumerate(ports) if own == port]
        offer = min((offers[index] for index in members if pfs[index].mbps), default=0)
        for index in members:
            offers[index] = offer
    return offers


def sum_by_port(amounts: Sequence[int], ports: SharedPorts) -> list[int]:
    """Return for each PF the sum of the amounts over all PFs of its port."""
    sums = [0] * len(ports)
    for amount, port in zip(amounts, ports, strict=True):
        sums[port] += amount
    return [sums[port] for port in ports]
