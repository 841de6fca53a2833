"""Host ports: whose are taken, by protocol and address, against the rule for two ports."""

import random

import msgspec

from scheduler.kube.host_ports import ALL_ADDRESSES, MAX_ADDRESSES, HostPort, PortRequest, host_ports, pack_ports
from scheduler.kube.objects import PodSpec


def clash(one: HostPort, other: HostPort) -> bool:
    """Return whether both are one port: checkConflict of HostPortInfo in Kubernetes' pkg/scheduler/framework."""
    addresses = {one[2], other[2]}
    return one[:2] == other[:2] and (len(addresses) == 1 or ALL_ADDRESSES in addresses)


def test_ports_clash_as_two_of_them_do() -> None:
    """Two protocols, three addresses, few numbers: two pods at a time, and one against several."""
    dice = random.Random(5)

    def some() -> list[HostPort]:
        addresses = (ALL_ADDRESSES, "10.0.0.1", "fd00::1")
        count = dice.randint(0, 4)
        return [(dice.randint(1, 9), dice.choice(("TCP", "UDP")), dice.choice(addresses)) for _ in range(count)]

    seen = set()
    for _ in range(3000):
        wanted, taken = some(), [some() for _ in range(dice.randint(1, 3))]
        expected = any(clash(one, other) for one in wanted for of_pod in taken for other in of_pod)
        assert PortRequest(pack_ports(wanted)).clash(map(pack_ports, taken)) is expected, (wanted, taken)
        seen.add(expected)
    assert seen == {False, True}


def test_ports_of_containers_and_sidecars_are_read_with_protocol_and_address() -> None:
    """No address, 0.0.0.0, means all of them; a port without a host port is none."""
    udp, sidecar = {"hostPort": 80, "protocol": "UDP", "hostIP": "10.0.0.1"}, {"hostPort": 82, "hostIP": "0.0.0.0"}
    init = [{"name": "i", "ports": [{"hostPort": 81}]}, {"name": "s", "ports": [sidecar], "restartPolicy": "Always"}]
    spec = {"containers": [{"name": "c", "ports": [udp, {"containerPort": 83}]}], "initContainers": init}
    ports = list(host_ports(msgspec.convert(spec, PodSpec)))
    assert ports == [(80, "UDP", "10.0.0.1"), (82, "TCP", ALL_ADDRESSES)]


def test_any_number_that_the_api_could_carry_is_kept() -> None:
    """The API server refuses what is above 65,535; a parser must not fail by it."""
    odd = pack_ports([(2**31 - 1, "TCP", "")])
    assert PortRequest(odd).clash([odd])
    assert not PortRequest(odd).clash([pack_ports([(65_535, "TCP", "")]), frozenset()])


def test_ports_on_more_addresses_than_hosts_have_count_on_every_address() -> None:
    """None is left out, and one pod is at most so many comparisons."""
    many = [(number, "TCP", f"10.1.{number >> 8}.{number & 255}") for number in range(1, 4097)]
    taken = pack_ports(many)
    assert len(taken) == MAX_ADDRESSES + 1
    assert all(PortRequest(pack_ports([port])).clash([taken]) for port in many)
    assert not PortRequest(pack_ports([(5000, "TCP", ""), (1, "UDP", "10.1.0.1")])).clash([taken])
