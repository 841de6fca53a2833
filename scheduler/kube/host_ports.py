"""Host ports of a pod, in a form that is small for thousands of them and compared in one pass.

A port is used once per protocol and address; 0.0.0.0, or none, means every address. Source: HostPortInfo in
pkg/scheduler/framework of Kubernetes.
"""

from array import array
from collections.abc import Iterable, Iterator, Set
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
MAX_ADDRESSES = 64


def host_ports(spec: PodSpec) -> Iterator[HostPort]:
    """Yield the host ports of a pod, including those of sidecars, which run together with the containers."""
    sidecars = (container for container in spec.init_containers or () if container.is_sidecar)
    for container in (*(spec.containers or ()), *sidecars):
        for port in container.ports or ():
            if port.host_port > 0:
                yield port.host_port, port.protocol, ALL_ADDRESSES if port.host_ip == "0.0.0.0" else port.host_ip


def pack_ports(ports: Iterable[HostPort]) -> HostPorts:
    """Return the ports in small form: never fewer, and more only if they are on more than `MAX_ADDRESSES`."""
    numbers = dict[tuple[str, str], set[int]]()
    for number, protocol, address in ports:
        numbers.setdefault((protocol, address), set()).add(number)
    for protocol, address in sorted(numbers)[MAX_ADDRESSES:]:
        excess = numbers.pop((protocol, address))
        numbers.setdefault((protocol, ALL_ADDRESSES), set()).update(excess)
    return frozenset((*key, array(_NUMBER, sorted(of_key)).tobytes()) for key, of_key in numbers.items())


class PortRequest:
    """The ports that a pod requests."""

    def __init__(self, ports: HostPorts) -> None:
        self._by_address = {
            (protocol, address): frozenset(memoryview(numbers).cast(_NUMBER)) for protocol, address, numbers in ports
        }
        self._by_protocol: dict[str, set[int]] = {}
        for (protocol, _), numbers in self._by_address.items():
            self._by_protocol.setdefault(protocol, set()).update(numbers)

    def clash(self, used_ports: Iterable[HostPorts]) -> bool:
        return any(
            not request.isdisjoint(memoryview(numbers).cast(_NUMBER))
            for ports in used_ports
            for protocol, address, numbers in ports
            for request in self._numbers_on(protocol, address)
        )

    def _numbers_on(self, protocol: str, address: str) -> list[Set[int]]:
        """Return the requested numbers that a port on this address can be equal to."""
        if address == ALL_ADDRESSES:
            return [self._by_protocol.get(protocol, set())]
        keys = (protocol, address), (protocol, ALL_ADDRESSES)
        return [self._by_address[key] for key in keys if key in self._by_address]
