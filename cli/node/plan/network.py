"""Plan the network configuration that the runtime uses: a copy of the node's own with mooring-cni as the last plugin.

Runtimes use the first configuration of their folder in byte order of names. The existing one is not changed, so its
owner can continue to write it. Ours is a copy with one more plugin, under a name that sorts before it.

Other programs copy the first configuration, too, which then is ours: Multus (`cli.node.plan.delegation`), and Cilium if
it is chained behind another network (findCNINetwork in its daemon/cmd/cni/config.go). Our copy never leads back to
itself. Service meshes insert their plugin into the first configuration; there it stays.
"""

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cli.node.errors import NodeError
from cli.node.plan import delegation
from cli.node.plan.cni_folder import OURS, PLUGIN, Configuration, configurations, is_ours, json_of, raw_entries, used
from cli.node.plan.states import Change, File, Host, PathChange

_LEAST = "0.4.0"  # The oldest version that mooring-cni supports; lists with older versions get this one.
# Plugins whose installer inserts them into the first configuration of the folder, and restores them there:
# getDefaultCNINetwork and insertCNIConfig in Istio's cni/pkg/install/cniconfig.go, defaultCNIConfigFile and validConfig
# in Consul's control-plane/subcommand/install-cni/cniconfig.go, likewise Kuma's app/cni/pkg/install; install_cni_conf
# of Linkerd's install-cni.sh puts its own into each configuration.
_JOINING = ("consul-cni", "istio-cni", "kuma-cni", "linkerd-cni")
# Who renames others' configurations, by the ending: Cilium whenever the folder changes (cleanupOtherCNI in its
# daemon/cmd/cni/config.go), Multus when it starts (createMultusConfig in its cmd/thin_entrypoint/main.go).
_RENAMERS = {
    ".cilium_bak": ("Cilium", "set cni.exclusive: false in its Helm values (cni-exclusive in ConfigMap cilium-config)"),
    ".old": ("Multus", "remove --rename-conf-file from the arguments of its DaemonSet"),
}
CILIUM = "cilium-cni"
# Plugins whose programs write a configuration of their own with a copy of the first one, which can be ours. Istio's
# does with istioOwnedCNIConfig (cni/pkg/install/cniconfig.go since Istio 1.29).
_COPYING = frozenset({*delegation.MULTUS, CILIUM, *_JOINING})
# Who writes a configuration, by its name or a plugin's type.
_OWNERS = {
    "multus": "Multus",
    "multus-shim": "Multus",
    "cilium-cni": "Cilium",
    "calico": "Calico",
    "kindnet": "kindnet",
    "ovn-k8s-cni-overlay": "OVN-Kubernetes",
    "istio-cni": "Istio",
    "antrea": "Antrea",
    "kube-ovn": "Kube-OVN",
}


def chain(host: Host, plugin: Mapping[str, Any]) -> list[Change]:
    """Return the changes that chain mooring-cni; raise NodeError if no configuration exists to chain to.

    ``plugin`` is the operator's part of mooring-cni's own entry: ipam, networks, ….
    """
    first = _first(host)
    ours = _ours(host)
    by_operator = [is_ours(entry) for entry in first.plugins]
    if any(by_operator) and (not ours or all(by_operator)):
        return []
    folder = host.cni.conf
    delegation.refuse_others(folder, first)
    path = f"{folder}/{_name_before(folder, first.name)}"
    document = _joined(_chained(delegation.without_ours(host, first, OURS, plugin), plugin), host, ours)
    wanted = File(json.dumps(document, indent=2) + "\n")
    stale = [f"{folder}/{name}" for name in ours if f"{folder}/{name}" != path]
    moved: list[Change] = [PathChange(old, host.at(old), None) for old in stale]
    placed = (
        [] if _is_at(host, path, document) else [PathChange(path, host.at(path), wanted, host.missing_folder(path))]
    )
    return [*placed, *moved]


def released(host: Host) -> list[Change]:
    """Return the changes that keep others' copies of our chain from calling mooring-cni once it is removed."""
    folder = host.cni.conf
    found: list[Change] = [
        PathChange(f"{folder}/{name}", host.at(f"{folder}/{name}"), None) for name in _set_aside(host)
    ]
    for configuration in configurations(host):
        path = f"{folder}/{configuration.name}"
        state = host.at(path)
        types = {str(entry.get("type")) for entry in configuration.plugins}
        if not isinstance(state, File) or configuration.name in OURS or not types & _COPYING:
            continue
        try:
            raw = delegation.raw_without_ours(host, configuration, OURS, {})
        except NodeError:
            continue
        if raw != configuration.raw:
            found.append(PathChange(path, state, File(json.dumps(raw, indent=2) + "\n", state.mode)))
    return found


def advice(host: Host) -> Iterator[str]:
    """Yield advice for the operator about the node's network before mooring-cni is chained to it."""
    folder = host.cni.conf
    if any(entry.get("type") == CILIUM for configuration in configurations(host) for entry in configuration.plugins):
        yield f"Cilium must not manage {folder} exclusively (its default): {_RENAMERS['.cilium_bak'][1]}"


def problems(host: Host) -> Iterator[tuple[str, str]]:
    """Yield path and description of each problem with the plugins that the runtime would call for a pod."""
    folder, ours = host.cni.conf, _ours(host)
    for name in _set_aside(host) if not ours else ():
        who, setting = _renamer(name)
        yield f"{folder}/{name}", f"{who} has disabled Mooring's chain: {setting or 'find out who renames files there'}"
    first = used(host)
    if first is None:
        return
    path = f"{folder}/{first.name}"
    try:
        calls = list(delegation.calls(host, first))
    except delegation.DelegationError as wrong:
        yield path, str(wrong)
        return
    depths = [call.depth for call in calls if call.type == PLUGIN]
    if ours and not depths:
        yield path, f"the runtime uses this file of {_owner(first)}, not Mooring's chain: run mooring-node install"
    if len(depths) > 1:
        yield path, f"{PLUGIN} would be called {len(depths)} times for each pod"
    if any(depths):
        yield path, f"{PLUGIN} is called by Multus, which hides the pods' annotations from it: run mooring-node install"
    if sum(call.type in delegation.MULTUS for call in calls) > 1:
        yield path, "Multus would call itself"


def _renamer(name: str) -> tuple[str, str]:
    """Return who renames configurations to names with this ending, and the setting that ends it, empty if unknown."""
    return _RENAMERS.get(posixpath.splitext(name)[1], ("another program", ""))


def _owner(configuration: Configuration) -> str:
    """Return the program that writes a configuration, by its name or its plugins."""
    kinds = [str(configuration.raw["name"]), *(str(entry.get("type")) for entry in configuration.plugins)]
    return next((_OWNERS[kind] for kind in kinds if kind in _OWNERS), repr(kinds[1]))


def _first(host: Host) -> Configuration:
    """Return the first configuration that is not ours."""
    first = used(host, OURS, strict=True)
    if first is None:
        named = f" called {host.cni.network!r}" if host.cni.network else ""
        raise NodeError(
            f"folder {host.cni.conf!r} has no network configuration{named}: install the cluster's network first, "
            "or use --network none"
        )
    return first


def _chained(document: Mapping[str, Any], plugin: Mapping[str, Any]) -> dict[str, Any]:
    ours = {"type": PLUGIN, **plugin, "capabilities": delegation.capabilities(plugin)}
    version = max(str(document["cniVersion"]), _LEAST, key=_numbers)
    # From 0.4.0 on CRI-O calls CHECK of each plugin after ADD (checkNetwork in ocicni's pkg/ocicni/ocicni.go). Plugins
    # of an older list, such as Cilium's with 0.3.1, were never asked, and some IPAM plugins always fail it.
    fixed = {"cniVersion": version, "disableCheck": True}
    return {**document, **fixed, "plugins": [*document["plugins"], ours]}


def _joined(document: dict[str, Any], host: Host, ours: Sequence[str]) -> dict[str, Any]:
    """Return a chain with the plugins that others have inserted into ours, at the same positions or at the end.

    A service mesh that was there first is in the configuration that ours copies, and need not write into ours.
    """
    present = [entry for name in ours[:1] for entry in raw_entries(host, name)]
    joining = {entry["type"]: entry for entry in present if entry.get("type") in _JOINING}
    if not joining:
        return document
    copied = document["plugins"]
    if [entry["type"] for entry in copied] == [entry.get("type") for entry in present]:
        return {**document, "plugins": [joining.get(entry["type"], entry) for entry in copied]}
    plugins = [entry for entry in copied if entry["type"] not in joining]
    return {**document, "plugins": [*plugins, *joining.values()]}


def _is_at(host: Host, path: str, document: Mapping[str, Any]) -> bool:
    """Return whether a file has this JSON in any format: programs that join a chain reformat it."""
    return json_of(host.text(path) or "") == document


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def _name_before(folder: str, first: str) -> str:
    found = next((name for name in OURS if name.encode() < first.encode()), None)
    if found is None:
        raise NodeError(f"no file name sorts before {first!r} in {folder!r}: rename that file")
    return found


def _ours(host: Host) -> Sequence[str]:
    """Return the names of our existing files, in byte order."""
    return [name for name in host.below(host.cni.conf) if name in OURS and any(map(is_ours, raw_entries(host, name)))]


def _set_aside(host: Host) -> Sequence[str]:
    """Return the names of files that were ours until another program renamed them."""
    renamed = tuple(f"{name}." for name in OURS)
    return [name for name in host.below(host.cni.conf) if name.startswith(renamed)]
