"""Host ports of a pod, in a form that is small for thousands of them and compared in one pass.

A port is used once per protocol and address; 0.0.0.0, or none, means every address. Source: HostPortInfo in
pkg/scheduler/framework of Kubernetes.
"""

from array import array
from collections.abc import Iterable, Iterator
from typing import Final

from scheduler.kube.objects import PodSpec

# Number, protocol and address.
HostPort = tuple[int, str, str]
# The address that stands for all addresses of the host.
ALL_ADDRESSES = ""
# For each protocol and address the numbers, sorted, four bytes each.
HostPorts = frozenset[tuple[str, str, bytes]]
NO_PORTS: HostPorts = frozenset()
_NUMBER: Final = "I"
# Maximum number of protocol and address pairs of one pod; ports on further ones count as on every address. Few hosts
# have as many.
MOST_ADDRESSES = 64


def host_ports(spec: PodSpec) -> Iterator[HostPort]:
    """Yield the host ports of a pod, including those of sidecars, which run together with the containers."""
    sidecars = (
        init_container for init_container in spec.init_containers or () if init_container.restart_policy == "Always"
    )
    for container in (*(spec.containers or ()), *sidecars):
        for port in container.ports or ():
            if port.host_port > 0:
                yield port.host_port, port.protocol, ALL_ADDRESSES if port.host_ip == "0.0.0.0" else port.host_ip


def ports_taken(ports: Iterable[HostPort]) -> HostPorts:
    """Return the ports that these use: never fewer, and more only if they are on more than `MOST_ADDRESSES`."""
    numbers = dict[tuple[str, str], set[int]]()
    for number, protocol, address in ports:
        numbers.setdefault((protocol, address), set()).add(number)
    for protocol, address in sorted(numbers)[MOST_ADDRESSES:]:
        further = numbers.pop((protocol, address))
        numbers.setdefault((protocol, ALL_ADDRESSES), set()).update(further)
    return frozenset((*key, array(_NUMBER, sorted(of_key)).tobytes()) for key, of_key in numbers.items())


class Wanted:
    """The ports that a pod requests."""

    def __init__(self, ports: HostPorts) -> None:
        # By protocol: the numbers by address, and those of all addresses together.
        self._by_address: dict[str, dict[str, frozenset[int]]] = {}
        self._on_any: dict[str, set[int]] = {}
        for protocol, address, packed in ports:
            numbers = frozenset(memoryview(packed).cast(_NUMBER))
            self._by_address.setdefault(protocol, {})[address] = numbers
            self._on_any.setdefault(protocol, set()).update(numbers)

    def clash(self, used_ports: Iterable[HostPorts]) -> bool:
        return any(
            not numbers.isdisjoint(memoryview(packed).cast(_NUMBER))
            for ports in used_ports
            for protocol, address, packed in ports
            for numbers in self._clashing(protocol, address)
        )

    def _clashing(self, protocol: str, address: str) -> Iterator[frozenset[int] | set[int]]:
        """Yield the requested numbers on the addresses that these use."""
        if address == ALL_ADDRESSES:
            yield self._on_any.get(protocol, set())
            return
        by_address = self._by_address.get(protocol, {})
        for listen_address in (address, ALL_ADDRESSES):
            if listen_address in by_address:
                yield by_address[listen_address]
