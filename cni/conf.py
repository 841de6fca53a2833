"""The plugin's configuration: which folders, which IPAM, what the runtime says of the pod.

Takes the JSON object from standard input, returns a `Conf`; raises CniError code 7 naming the field. A field that is
neither ours nor the specification's is an error: a misspelt one would be a setting that is silently absent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_network
from typing import Any

from cni.result import Route
from cni.skel import BAD_CONFIG, CniError

STATE = "/var/lib/mooring"
RUN = "/run/mooring"
SYSFS = "/sys"
_ANNOTATIONS = "io.kubernetes.cri.pod-annotations"
_OURS = (
    "node",
    "state",
    "run",
    "sysfs",
    "server",
    "ipam",
    "networks",
    "network",
    "policyRouting",
    "holdTimeoutSeconds",
)
_THEIRS = (
    *("cniVersion", "cniVersions", "name", "type", "capabilities", "runtimeConfig", "prevResult", "args", "dns"),
    *("ipMasq", "disableCheck", "disableGC", "loadOnlyInlinedPlugins", "deviceID", "pciBusID"),
)
_DEFAULT_HOLD_S = 5.0
_LONGEST_HOLD_S = 60.0
_NETWORK_FIELDS = ("ipam", "routes", "mtu")
# The kernel's ETH_MIN_MTU and IP_MAX_MTU.
_LEAST_MTU, _MOST_MTU = 68, 65535


@dataclass(frozen=True, slots=True)
class NetworkConf:
    """What a network's VFs get: addresses (``ipam`` None: none), routes beyond IPAM's, an MTU (None: as found)."""

    ipam: Mapping[str, Any] | None = field(default=None, hash=False)
    routes: tuple[Route, ...] = ()
    mtu: int | None = None


@dataclass(frozen=True, slots=True)
class Conf:
    """One call's configuration. ``ipam`` is None where VFs get no addresses; ``hold_s``: how long to wait."""

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
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)
    previous: Mapping[str, Any] | None = field(default=None, hash=False)

    def network_of(self, network: str) -> NetworkConf:
        """Return what a network's VFs get: its own under ``networks``, with the common IPAM where it names none."""
        own = self.networks.get(network, NetworkConf())
        return own if own.ipam is not None else replace(own, ipam=self.ipam)

    def ipam_of(self, network: str) -> Mapping[str, Any] | None:
        """Return the IPAM configuration for a network's VFs: its own under ``networks``, else the common one."""
        return self.network_of(network).ipam


def read_conf(raw: Mapping[str, object], version: str) -> Conf:
    """Check a configuration; raise CniError code 7."""
    for name in raw:
        if name not in _OURS and name not in _THEIRS and not name.startswith("cni.dev/"):
            raise CniError(BAD_CONFIG, f"configuration field {name[:80]!r} is not known")
    return Conf(
        name=_text(raw, "name", "") or "mooring",
        version=version,
        node=_text(raw, "node", "") or None,
        state=_folder(raw, "state", STATE),
        run=_folder(raw, "run", RUN),
        sysfs=_folder(raw, "sysfs", SYSFS),
        ipam=_check_ipam(raw.get("ipam"), "ipam"),
        networks={name: _network(value, f"networks.{name}") for name, value in _optional(raw, "networks").items()},
        network=_text(raw, "network", "") or None,
        policy_routing=_flag(raw, "policyRouting", default=True),
        hold_s=_seconds(raw),
        annotations=_annotations(raw),
        previous=_mapping(raw["prevResult"], "prevResult") if raw.get("prevResult") is not None else None,
    )


def _text(raw: Mapping[str, object], name: str, default: str) -> str:
    value = raw.get(name, default)
    if not isinstance(value, str):
        raise CniError(BAD_CONFIG, f"configuration field {name!r}: {value!r:.80} is not a string")
    return value


def _folder(raw: Mapping[str, object], name: str, default: str) -> str:
    value = _text(raw, name, default)
    if not value.startswith("/") or "/../" in f"{value}/" or "\0" in value:
        raise CniError(BAD_CONFIG, f"configuration field {name!r}: {value[:80]!r} is not an absolute path")
    return value


def _mapping(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise CniError(BAD_CONFIG, f"configuration field {name[:80]!r} is not an object")
    return value


def _optional(raw: Mapping[str, object], name: str) -> Mapping[str, Any]:
    return _mapping(raw[name], name) if raw.get(name) is not None else {}


def _check_ipam(value: object, name: str) -> Mapping[str, Any] | None:
    if value is None or value == {}:
        return None
    kind = _mapping(value, name).get("type")
    if not isinstance(kind, str) or not kind or "/" in kind or kind.startswith("."):
        raise CniError(BAD_CONFIG, f"configuration field '{name}.type': {kind!r:.80} is not a plugin's name")
    return _mapping(value, name)


def _network(value: object, name: str) -> NetworkConf:
    document = _mapping(value, name)
    for unknown in document.keys() - set(_NETWORK_FIELDS):
        raise CniError(BAD_CONFIG, f"configuration field '{name[:80]}.{unknown[:80]}' is not known")
    return NetworkConf(
        ipam=_check_ipam(document.get("ipam"), f"{name}.ipam"),
        routes=_routes(document.get("routes"), f"{name}.routes"),
        mtu=_mtu(document.get("mtu"), f"{name}.mtu"),
    )


def _routes(value: object, name: str) -> tuple[Route, ...]:
    if not isinstance(value, list | None):
        raise CniError(BAD_CONFIG, f"configuration field {name[:80]!r} is not a list")
    return tuple(
        _route(_mapping(route, f"{name}[{index}]"), f"{name}[{index}]") for index, route in enumerate(value or ())
    )


def _route(document: Mapping[str, Any], name: str) -> Route:
    dst, gateway = document.get("dst"), document.get("gw")
    try:
        if document.keys() - {"dst", "gw"} or not isinstance(dst, str) or not isinstance(gateway, str | None):
            raise ValueError("its fields are dst and gw")
        is_of_one_family = gateway is None or ip_network(dst).version == ip_address(gateway).version
        if not is_of_one_family:
            raise ValueError(f"{dst!r} and {gateway!r} are not of one family")
        return Route(str(ip_network(dst)), gateway)
    except ValueError as wrong:
        raise CniError(BAD_CONFIG, f"configuration field {name[:80]!r} is not a route: {wrong}") from None


def _mtu(value: object, name: str) -> int | None:
    if value is None or (type(value) is int and _LEAST_MTU <= value <= _MOST_MTU):
        return value
    raise CniError(
        BAD_CONFIG, f"configuration field {name[:80]!r}: {value!r:.80} is not from {_LEAST_MTU} to {_MOST_MTU}"
    )


def _flag(raw: Mapping[str, object], name: str, *, default: bool) -> bool:
    value = raw.get(name, default)
    if not isinstance(value, bool):
        raise CniError(BAD_CONFIG, f"configuration field {name!r}: {value!r:.80} is neither true nor false")
    return value


def _seconds(raw: Mapping[str, object]) -> float:
    value = raw.get("holdTimeoutSeconds", _DEFAULT_HOLD_S)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LONGEST_HOLD_S:
        raise CniError(BAD_CONFIG, f"configuration field 'holdTimeoutSeconds': {value!r:.80} is not from 0 to 60")
    return float(value)


def _annotations(raw: Mapping[str, object]) -> Mapping[str, str]:
    """Return the pod's annotations; the runtime sends null for a pod that has none."""
    given = _optional(raw, "runtimeConfig").get(_ANNOTATIONS)
    if given is None:
        return {}
    annotations = _mapping(given, f"runtimeConfig.{_ANNOTATIONS}")
    if not all(isinstance(value, str) for value in annotations.values()):
        raise CniError(BAD_CONFIG, "the pod's annotations are not strings")
    return annotations
