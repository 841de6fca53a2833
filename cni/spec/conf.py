"""Read the plugin's configuration: its folders, its IPAM, and the runtime's data about the pod.

`read_conf` takes the JSON object from standard input and returns a `Conf`; it raises CniError 7 that names the field.
An unknown field is an error, because a misspelt setting would otherwise be ignored silently. DEL reads only the fields
that it needs: a pod must be removable even if its configuration has become invalid.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_interface
from typing import Any

from cni.spec import fields
from cni.spec.network import NetworkConf, read_ipam, read_network
from cni.spec.result import read_previous
from cni.spec.skel import Call, CniError
from mooring.annotations.request import asks_for_vfs
from mooring.errors import ContractError
from mooring.names import ASSIGNMENT
from mooring.nic.settings import mac
from mooring.parsing import Value

STATE = "/var/lib/mooring"
RUN = "/run/mooring"
SYSFS = "/sys"
_ANNOTATIONS = "io.kubernetes.cri.pod-annotations"
_ATTACHMENTS = ("cni.dev/valid-attachments", "cni.dev/attachments")
_OWN_FIELDS = (
    *("node", "state", "run", "sysfs", "server", "ipam", "networks", "network", "policyRouting"),
    *("holdTimeoutSeconds", "awaitInit"),
)
_RUNTIME_FIELDS = (
    *("cniVersion", "cniVersions", "name", "type", "capabilities", "runtimeConfig", "prevResult", "args", "dns"),
    *("ipMasq", "disableCheck", "disableGC", "loadOnlyInlinedPlugins", "deviceID", "pciBusID"),
)
# Limits of one configuration: its networks, and the routes of all its networks.
_MOST_NETWORKS, _MOST_ROUTES = 1024, 4096
# The characters that the specification allows, at most as long as a file name: IPAM plugins keep a folder by this name.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}", re.ASCII)
_DEFAULT_HOLD_S = 5.0
_LONGEST_HOLD_S = 60.0


@dataclass(frozen=True, slots=True)
class Conf:
    """One call's configuration.

    ``ipam`` is None if VFs get no addresses. ``hold_s`` is how long ADD waits for a held VF, in seconds. ``mac`` and
    ``ips`` are the runtime's requests for this attachment. ``valid`` has the attachments that GC must keep, None if the
    runtime passes no list. ``ipam_files`` are this node's own files that name its IPAM plugins; None on a node without
    a configuration file, where a call may name any plugin. ``sends_annotations``: the runtime passes the pod's
    annotations. ``error`` makes the rest of the configuration unusable; it fails only calls with VFs.
    """

    name: str
    version: str
    node: str | None = None
    state: str = STATE
    run: str = RUN
    sysfs: str = SYSFS
    ipam: Mapping[str, Any] | None = field(default=None, hash=False)
    networks: Mapping[str, NetworkConf] = field(default_factory=dict, hash=False)
    network: str | None = None
    policy_routing: bool = True
    hold_s: float = _DEFAULT_HOLD_S
    await_init: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)
    sends_annotations: bool = False
    dns: Mapping[str, Any] = field(default_factory=dict, hash=False)
    mac: str | None = None
    ips: tuple[str, ...] = ()
    previous: Mapping[str, Any] | None = field(default=None, hash=False)
    valid: frozenset[tuple[str, str]] | None = None
    checks: bool = True
    collects: bool = True
    ipam_files: tuple[str, ...] | None = None
    error: CniError | None = field(default=None, compare=False)

    @property
    def asks_for_vfs(self) -> bool:
        """Whether the pod's annotations have a request for VFs or an assignment; False without annotations."""
        return asks_for_vfs(self.annotations) or ASSIGNMENT in self.annotations

    def check(self) -> None:
        """Raise the error in the configuration, if there is one; called before VFs are attached."""
        if self.error is not None:
            raise self.error

    def network_of(self, network: str) -> NetworkConf:
        """Return the settings for the VFs of a network, from ``networks``, with the common IPAM as the default."""
        network_conf = self.networks.get(network, NetworkConf())
        return network_conf if network_conf.ipam is not None else replace(network_conf, ipam=self.ipam)

    def every_ipam(self) -> dict[str, Mapping[str, Any]]:
        """Return every distinct IPAM configuration, by the first field that has it."""
        by_field = {f"networks.{name}.ipam": network.ipam for name, network in self.networks.items()}
        by_field = {"ipam": self.ipam, **by_field}
        ipams: dict[str, Mapping[str, Any]] = {}
        for name, ipam in by_field.items():
            if ipam is not None and ipam not in ipams.values():
                ipams[name] = ipam
        return ipams

    def ipam_conf(self, ipam: Mapping[str, Any]) -> dict[str, object]:
        """Return the configuration for a call of an IPAM plugin, in version 1.0.0 at most, which these plugins support.

        It has the requested addresses in both places where the plugins static and host-local read them.
        """
        conf: dict[str, object] = {"cniVersion": min(self.version, "1.0.0"), "name": self.name, "ipam": dict(ipam)}
        requests = {"runtimeConfig": {"ips": list(self.ips)}, "args": {"cni": {"ips": list(self.ips)}}}
        return conf | (requests if self.ips else {})


def read_conf(call: Call, raw: Mapping[str, object], version: str) -> Conf:
    """Check and return the configuration of a call; ``raw`` includes the node's defaults. Raise CniError 7."""
    conf = _read_places(raw, version)
    if call.command == "DEL":
        return conf
    for name in raw:
        if name not in _OWN_FIELDS and name not in _RUNTIME_FIELDS and not name.startswith("cni.dev/"):
            fields.refuse(name, " is unknown")
    if not conf.name:
        fields.refuse("name", " is missing: a network needs a name")
    if _NAME.fullmatch(conf.name) is None:
        fields.refuse("name", f": {conf.name[:80]!r} is not a valid network name (at most 255 of A-Z a-z 0-9 _ . -)")
    if fields.flag(raw, "ipMasq", default=False):
        fields.refuse("ipMasq", ": a VF's packets bypass the host's network stack, so the host cannot masquerade them")
    fields.folder(raw, "server", RUN)
    networks = fields.optional_mapping(raw, "networks")
    _check_limits(networks)
    return replace(
        _with_pod(conf, raw, version),
        ipam=read_ipam(raw.get("ipam"), "ipam"),
        networks={name: read_network(value, f"networks.{name}") for name, value in networks.items()},
        policy_routing=fields.flag(raw, "policyRouting", default=True),
        hold_s=fields.seconds(raw, "holdTimeoutSeconds", _DEFAULT_HOLD_S, _LONGEST_HOLD_S),
        await_init=fields.flag(raw, "awaitInit", default=False),
        dns=fields.optional_mapping(raw, "dns"),
        mac=_mac(raw, call),
        ips=_ips(raw),
        valid=_valid(raw),
        checks=not fields.flag(raw, "disableCheck", default=False),
        collects=not fields.flag(raw, "disableGC", default=False),
    )


def read_plain_conf(raw: Mapping[str, object], version: str, error: CniError) -> Conf:
    """Read the part of an invalid configuration that a pod without VFs needs; raise CniError 7."""
    return replace(_with_pod(_read_places(raw, version), raw, version), error=error)


def _with_pod(conf: Conf, raw: Mapping[str, object], version: str) -> Conf:
    """Add the pod's annotations and the chain's result so far to a configuration."""
    return replace(
        conf,
        annotations=_annotations(raw),
        sends_annotations=_ANNOTATIONS in fields.optional_mapping(raw, "runtimeConfig"),
        previous=read_previous(raw["prevResult"], version) if raw.get("prevResult") is not None else None,
    )


def sends_annotations(raw: Mapping[str, object]) -> bool:
    """Return whether the configuration requests the pod's annotations; the runtime then passes them to every ADD."""
    capabilities = raw.get("capabilities")
    return isinstance(capabilities, dict) and capabilities.get(_ANNOTATIONS) is True


def _check_limits(networks: Mapping[str, object]) -> None:
    """Refuse too many networks or routes: a tenant may write them, and reading them delays other pods' calls."""
    routes = [network.get("routes") for network in networks.values() if isinstance(network, dict)]
    route_count = sum(len(entries) for entries in routes if isinstance(entries, list))
    for kind, count, limit in (("networks", len(networks), _MOST_NETWORKS), ("routes", route_count, _MOST_ROUTES)):
        if count > limit:
            fields.refuse("networks", f": {count} {kind} exceed the limit of {limit}")


def _read_places(raw: Mapping[str, object], version: str) -> Conf:
    return Conf(
        name=fields.text(raw, "name", ""),
        version=version,
        node=fields.text(raw, "node", "") or None,
        state=fields.folder(raw, "state", STATE),
        run=fields.folder(raw, "run", RUN),
        sysfs=fields.folder(raw, "sysfs", SYSFS),
        network=fields.text(raw, "network", "") or None,
    )


def _annotations(raw: Mapping[str, object]) -> Mapping[str, str]:
    """Return the pod's annotations; the runtime sends null for a pod without annotations."""
    value = fields.optional_mapping(raw, "runtimeConfig").get(_ANNOTATIONS)
    if value is None:
        return {}
    annotations = fields.mapping(value, f"runtimeConfig.{_ANNOTATIONS}")
    if not all(isinstance(annotation, str) for annotation in annotations.values()):
        fields.refuse(f"runtimeConfig.{_ANNOTATIONS}", ": the pod's annotations must be strings")
    return annotations


def _mac(raw: Mapping[str, object], call: Call) -> str | None:
    """Return the MAC that the runtime requests, by the capability or by the older CNI argument of Multus."""
    value = fields.optional_mapping(raw, "runtimeConfig").get("mac") or call.args.get("MAC") or None
    if value is None:
        return None
    try:
        return mac(Value(value, "configuration", ContractError, step="runtimeConfig.mac"))
    except ContractError as error:
        fields.refuse("runtimeConfig.mac", f": {error.rule}")


def _ips(raw: Mapping[str, object]) -> tuple[str, ...]:
    addresses = fields.strings(fields.optional_mapping(raw, "runtimeConfig").get("ips"), "runtimeConfig.ips")
    for address in addresses:
        try:
            ip_interface(address)
        except ValueError:
            fields.refuse("runtimeConfig.ips", f": {address!r:.80} is not an IP address")
    return addresses


def _valid(raw: Mapping[str, object]) -> frozenset[tuple[str, str]] | None:
    """Return the attachments that GC must keep, as (container, CNI_IFNAME); libcni also sends an older field."""
    name = next((name for name in _ATTACHMENTS if name in raw), None)
    if name is None:
        return None
    attachments: Sequence[Mapping[str, Any]] = fields.mappings(raw[name], name)
    try:
        return frozenset(
            (fields.text(attachment, "containerID", ""), fields.text(attachment, "ifname", ""))
            for attachment in attachments
        )
    except CniError as error:
        fields.refuse(name, f": {error.msg}")
