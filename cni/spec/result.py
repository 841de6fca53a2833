"""Build the result of ADD: the chain's result so far, then Mooring's interfaces.

Source: CNI specification 1.1.0, section 5 (ADD success); results have ``mtu`` since 1.1.0.

All addresses of a pod's result are the pod's IPs for CRI-O, whatever interface they are on (networkStart in its
server/sandbox_network.go), and the kubelet takes the first of each family (sortPodIPs in pkg/kubelet/kubelet_pods.go).
CRI-O also calls CHECK of the whole chain right after ADD (GetPodNetworkStatus in ocicni's pkg/ocicni/ocicni.go), and
plugins like bridge and ptp then want every address and route of the result on their own interface
(ValidateExpectedInterfaceIPs and ValidateExpectedRoute in containernetworking's pkg/ip/utils_linux.go). So addresses
and routes of VFs are in the result only if no other network is: not in a chain, and not beside `eth0`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any

from cni.spec import fields

# Results of 0.3.x and 0.4.0 differ in shape from those of 1.0.0 and 1.1.0.
_OLD = ("0.3.0", "0.3.1", "0.4.0")
_NEW = ("1.0.0", "1.1.0")
_OLD_INTERFACE = ("name", "mac", "sandbox")
# The pod's own interface: defaultIfName of containerd's go-cni, and the first name in fillPodNetworks of ocicni.
_MAIN = "eth0"


@dataclass(frozen=True, slots=True)
class Address:
    """An address from IPAM, such as ``10.0.0.2/24``, with its gateway if it has one."""

    address: str
    gateway: str | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """A route from IPAM or from the configuration."""

    dst: str
    gateway: str | None = None


@dataclass(frozen=True, slots=True)
class AttachedVf:
    """One VF in the pod, as the result reports it."""

    name: str
    mac: str
    mtu: int
    addresses: Sequence[Address] = ()
    routes: Sequence[Route] = ()
    pci: str = ""
    dns: Mapping[str, Any] = field(default_factory=dict, hash=False)


def read_previous(value: object, version: str) -> dict[str, Any]:
    """Check the chain's result so far and convert it to the configuration's version; raise CniError 7."""
    result = fields.mapping(value, "prevResult")
    result_version = fields.text(result, "cniVersion", version)
    if result_version not in (*_OLD, *_NEW):
        fields.refuse("prevResult.cniVersion", f": {result_version[:80]!r} is not one of {', '.join((*_OLD, *_NEW))}")
    lists = {name: fields.mappings(result.get(name), f"prevResult.{name}") for name in ("interfaces", "ips", "routes")}
    for interface in lists["interfaces"]:
        for name in ("name", "mac", "sandbox"):
            fields.text(interface, name, "")
    for ip in lists["ips"]:
        _check_ip(ip)
    for route in lists["routes"]:
        _check_route(route)
    fields.optional_mapping(result, "dns")
    return _convert(result, version) | {"cniVersion": version}


def _check_ip(ip: Mapping[str, Any]) -> None:
    address, gateway, interface = ip.get("address"), ip.get("gateway"), ip.get("interface")
    try:
        ip_interface(address if isinstance(address, str) else "")
        ip_address(gateway if isinstance(gateway, str) else "0.0.0.0" if not gateway else "")
    except ValueError as error:
        fields.refuse("prevResult.ips", f": {str(error)[:160]}")
    if interface is not None and (type(interface) is not int or interface < 0):
        fields.refuse("prevResult.ips", f": interface {interface!r:.80} is not an index")


def _check_route(route: Mapping[str, Any]) -> None:
    dst, gateway = route.get("dst"), route.get("gw")
    try:
        ip_network(dst if isinstance(dst, str) else "", strict=False)
        ip_address(gateway if isinstance(gateway, str) else "0.0.0.0" if not gateway else "")
    except ValueError as error:
        fields.refuse("prevResult.routes", f": {str(error)[:160]}")


def _convert(result: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Convert a result to another version: up to 0.4.0 addresses have a family, and interfaces only the old fields."""
    document = dict(result)
    if version in _OLD and "interfaces" in document:
        interfaces = result["interfaces"] or ()
        document["interfaces"] = [
            {name: interface[name] for name in _OLD_INTERFACE if name in interface} for interface in interfaces
        ]
    if "ips" in document:
        ips = ({name: ip[name] for name in ip if name != "version"} for ip in result["ips"] or ())
        document["ips"] = [{**ip, **_family(ip["address"], version)} for ip in ips]
    return document


def _family(address: str, version: str) -> dict[str, str]:
    return {"version": "6" if ":" in address else "4"} if version in _OLD else {}


def pass_through(previous: Mapping[str, Any] | None, version: str) -> dict[str, Any]:
    """Return the chain's result so far, in the configuration's version."""
    return {**(previous or {}), "cniVersion": version}


def add_result(
    previous: Mapping[str, Any] | None,
    version: str,
    netns: str,
    vfs: Sequence[AttachedVf],
    dns: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the chain's result with Mooring's interfaces appended, and their addresses if they may be the pod's IPs.

    The name servers come from the first that has any: the chain's result, the configuration (``dns``), the IPAM
    plugins.
    """
    result = pass_through(previous, version)
    interfaces = list(result.get("interfaces") or ())
    ips = list(result.get("ips") or ())
    routes = list(result.get("routes") or ())
    mains = [vf for vf in vfs if vf.name == _MAIN] or vfs
    for vf in vfs:
        extra_fields = {"mtu": vf.mtu, **({"pciID": vf.pci} if vf.pci else {})} if version == "1.1.0" else {}
        interfaces.append({"name": vf.name, "mac": vf.mac, "sandbox": netns, **extra_fields})
        if previous is not None or vf not in mains:
            continue
        ips += [_ip(address, len(interfaces) - 1, version) for address in vf.addresses]
        routes += [{"dst": route.dst, **({"gw": route.gateway} if route.gateway else {})} for route in vf.routes]
    servers = next((candidate for candidate in (result.get("dns"), dns, *(vf.dns for vf in vfs)) if candidate), None)
    optional_fields = {name: value for name, value in {"routes": routes, "dns": servers}.items() if value}
    return result | {"interfaces": interfaces, "ips": ips} | optional_fields


def _ip(address: Address, interface: int, version: str) -> dict[str, Any]:
    ip: dict[str, Any] = {"address": address.address, "interface": interface, **_family(address.address, version)}
    return ip | ({"gateway": address.gateway} if address.gateway else {})
