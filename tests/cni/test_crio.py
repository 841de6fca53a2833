"""What CRI-O and the kubelet make of ADD's result: the pod's own addresses are its IPs, and no address of a VF is.

CRI-O itself does not run here. These are its rules, restated from cri-o at f954a17e, ocicni at 18fd1eb6 (both of August
2026), and the kubelet of Kubernetes 1.36.
"""

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any

import pytest

from cni.spec.result import Address, AttachedVf, Route, add_result, read_previous

POD4, POD6, POD = "10.244.1.5/24", "fd00:244::5/64", "/run/netns/pod"
VFS = (
    AttachedVf(
        "net1", "02:00:00:00:00:01", 1500, [Address("10.56.0.2/16"), Address("fd56::2/64")], [Route("10.9.0.0/16")]
    ),
    AttachedVf("net2", "02:00:00:00:00:02", 1500, [Address("10.57.0.2/16")]),
)


def crio_ips(result: Mapping[str, Any]) -> list[str]:
    """Return CRI-O's IPs of a pod: those of all interfaces, in order (networkStart in server/sandbox_network.go)."""
    return [ip["address"].split("/")[0] for ip in result["ips"]]


def kubelet_ips(ips: Sequence[str], node: int) -> list[str]:
    """Return a pod's status.podIPs: the first of the node's family, then the first of the other (sortPodIPs)."""
    families = [[ip for ip in ips if ip_address(ip).version == family] for family in (node, 10 - node)]
    return [family[0] for family in families if family]


def bridge_complains(result: Mapping[str, Any], there: Mapping[str, Sequence[str]], ifname: str = "eth0") -> list[str]:
    """Return what CHECK of bridge or ptp, which CRI-O calls after ADD, does not find on its interface.

    ValidateExpectedInterfaceIPs in containernetworking's pkg/ip/utils_linux.go.
    """
    return [ip["address"] for ip in result["ips"] if ip["address"] not in there[ifname]]


@pytest.mark.parametrize("version", ["0.4.0", "1.0.0", "1.1.0"])
@pytest.mark.parametrize(("pod", "node"), [([POD4], 4), ([POD6], 6), ([POD4, POD6], 4), ([POD6, POD4], 6)])
def test_a_pod_keeps_the_ips_of_its_own_network(version: str, pod: list[str], node: int) -> None:
    """One family or both: VFs with addresses of both families add none, so a pod of an IPv4 cluster has no IPv6."""
    main = {"name": "eth0", "mac": "02:00:00:00:00:09", "sandbox": POD}
    before = {"interfaces": [main], "ips": [{"address": address, "interface": 0} for address in pod]}
    result = add_result(read_previous(before, version), version, POD, VFS)
    assert kubelet_ips(crio_ips(result), node) == [address.split("/")[0] for address in pod]
    assert bridge_complains(result, {"eth0": pod}) == []
    assert [interface["name"] for interface in result["interfaces"]] == ["eth0", "net1", "net2"]
    assert not result.get("routes")


def test_as_the_main_plugin_only_the_main_interfaces_addresses_are_the_pods() -> None:
    """The first VF is eth0, and an IPv6 address of the second one is nobody's pod IP."""
    eth0 = AttachedVf("eth0", "02:00:00:00:00:03", 1500, [Address("10.58.0.2/16")])
    assert kubelet_ips(crio_ips(add_result(None, "1.0.0", POD, [eth0, *VFS])), 4) == ["10.58.0.2"]


def test_a_delegate_of_multus_reports_each_interfaces_addresses() -> None:
    """Its result is for Multus' network status and not for the runtime, which gets the main network's."""
    result = add_result(None, "1.0.0", POD, VFS)
    assert [(ip["address"], ip["interface"]) for ip in result["ips"]] == [
        ("10.56.0.2/16", 0),
        ("fd56::2/64", 0),
        ("10.57.0.2/16", 1),
    ]
