"""Plugins that call a whole configuration in their turn: Multus, which is followed, and others, which are refused.

Multus with `multusConfFile: auto` takes the first configuration of the folder that is not its own: ours, once it is
there. The thin plugin copies it into ``delegates`` (getMasterConfigPath and createMultusConfig in multus-cni's
cmd/thin_entrypoint/main.go), the daemon names its path as ``clusterNetwork`` (findMasterPlugin and GenerateConfig in
pkg/server/config). An operator may also give a network's name there, which Multus looks up in ``confDir`` where no
NetworkAttachmentDefinition has it (getNetDelegate in pkg/k8sclient/k8sclient.go). A copy of that would call itself
without end. So our copy of Multus' configuration has in that place what Multus would have taken without us: the first
configuration that is neither Multus' nor ours. It is the same whether Multus has started before us or after us, and
however often.
"""

import posixpath
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cli.node.errors import NodeError
from cli.node.plan.cni_folder import (
    FOLDER,
    OURS,
    PLUGIN,
    Configuration,
    configurations,
    entries_of,
    is_ours,
    json_of,
    list_of,
)
from cli.node.plan.states import Host

MULTUS = ("multus", "multus-shim")
# getClusterNetwork in CNI-Genie's genie/genie-netattachdef-controller.go reads the folder at each call.
_BY_FOLDER = ("genie",)
_ANNOTATIONS = "io.kubernetes.cri.pod-annotations"


class DelegationError(Exception):
    """What Multus is to call is itself again, or is not there."""


@dataclass(frozen=True, slots=True)
class PluginCall:
    """A plugin that is called for a pod; ``depth`` is how many others call it in their turn."""

    type: str
    depth: int


def capabilities(plugin: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the runtime is to pass to mooring-cni."""
    return {_ANNOTATIONS: True, **plugin.get("capabilities", {})}


def refuse_others(configuration: Configuration) -> None:
    """Raise NodeError for a plugin other than Multus that calls another configuration of the folder, or a copy."""
    for entry in configuration.plugins:
        kind = entry.get("type")
        if kind in MULTUS or not (kind in _BY_FOLDER or any(map(_is_configuration, entry.values()))):
            continue
        raise NodeError(
            f"plugin {kind!r} of {configuration.name!r} in {FOLDER!r} calls another configuration there, and would "
            f"call itself in a copy: let it name the cluster network's file, put {PLUGIN} behind the plugins of that "
            "file, and --network none"
        )


def _is_configuration(value: object) -> bool:
    """Return whether a field has the path of a configuration in the folder, or a whole configuration."""
    if isinstance(value, str):
        return _file_of(value) not in (None, "")
    if isinstance(value, list):
        return any(map(_is_configuration, value))
    if not isinstance(value, dict):
        return False
    is_whole = isinstance(value.get("plugins"), list) or {"type", "name"} <= value.keys()
    return is_whole or any(map(_is_configuration, value.values()))


def without_ours(
    host: Host, configuration: Configuration, ours: Collection[str], plugin: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a configuration, as a list, that does not lead to ours; raise NodeError if nothing is left to call."""
    return list_of(raw_without_ours(host, configuration, ours, plugin))


def raw_without_ours(
    host: Host, configuration: Configuration, ours: Collection[str], plugin: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a configuration's JSON in which neither an entry nor what Multus calls is ours."""

    def entry_without(entry: Mapping[str, Any]) -> Mapping[str, Any]:
        if entry.get("type") not in MULTUS:
            return entry
        return _multus_without(host, entry, ours, plugin, configuration.raw["name"])

    raw = dict(configuration.raw)
    if "plugins" in raw:
        return raw | {"plugins": [entry_without(entry) for entry in configuration.plugins if not is_ours(entry)]}
    return dict(entry_without(raw))


def _multus_without(
    host: Host, entry: Mapping[str, Any], ours: Collection[str], plugin: Mapping[str, Any], name: str
) -> Mapping[str, Any]:
    """Return an entry of Multus in a configuration of this ``name`` so that it does not call ours, nor itself by it."""
    cluster = next((each for each in configurations(host, ours) if not _is_of_multus(each)), None)
    path, delegates = entry.get("clusterNetwork"), entry.get("delegates")
    if isinstance(path, str) and path:
        if not _leads_to(host, entry, path, ours, name):
            return entry
        changed = {**entry, "clusterNetwork": _path_like(_place(entry, path), _needed(cluster).name)}
    elif isinstance(delegates, list) and any(map(_is_copy_of_ours, delegates)):
        instead = [dict(_needed(cluster).raw) if _is_copy_of_ours(each) else each for each in delegates]
        changed = {**entry, "delegates": instead}
    else:
        return entry
    # Multus passes on what the configuration that it calls can take, and that was ours.
    gone = capabilities(plugin).keys() - _capabilities_of(_needed(cluster).raw)
    left = {name: value for name, value in (entry.get("capabilities") or {}).items() if name not in gone}
    others = {name: value for name, value in changed.items() if name != "capabilities"}
    return others | ({"capabilities": left} if left else {})


def _needed(cluster: Configuration | None) -> Configuration:
    if cluster is None:
        raise NodeError(f"Multus calls our own chain, and folder {FOLDER!r} has no other network configuration")
    return cluster


def _is_copy_of_ours(delegate: object) -> bool:
    return any(is_ours(entry) for entry in entries_of(delegate))


def _is_of_multus(configuration: Configuration) -> bool:
    return any(entry.get("type") in MULTUS for entry in configuration.plugins)


def _capabilities_of(raw: Mapping[str, Any]) -> frozenset[str]:
    named = (entry.get("capabilities") for entry in entries_of(raw))
    return frozenset(name for each in named if isinstance(each, dict) for name in each)


def _leads_to(host: Host, entry: Mapping[str, Any], network: str, ours: Collection[str], name: str) -> bool:
    """Return whether Multus comes to one of ours by a path or a name; our copy has the ``name`` of what it copies."""
    if "/" in network:
        return _target(host, entry, network) in ours
    return network == name and _file_of(_place(entry, network)) == ""


def _target(host: Host, entry: Mapping[str, Any], network: str) -> str | None:
    """Return the file of the folder that Multus reads for a path or a name: of a folder the first one.

    What has no slash is a name. None where neither leads to the folder.
    """
    file = _file_of(_place(entry, network))
    if file != "":
        return file
    name = None if "/" in network else network
    return next((each.name for each in configurations(host) if name in (None, each.raw["name"])), None)


def _place(entry: Mapping[str, Any], network: str) -> str:
    """Return the path at which Multus looks: that of a name's folder is ``confDir``."""
    folder = entry.get("confDir")
    return network if "/" in network else folder if isinstance(folder, str) else ""


def _file_of(path: str) -> str | None:
    """Return the name of a file of the folder at a path, wherever that is mounted; empty for the folder.

    A file with a name that only our chain has is ours, whatever its folder is called there.
    """
    path = posixpath.normpath(path)
    if (own := posixpath.basename(path)) in OURS:
        return own
    _, there, name = path.rpartition(FOLDER)
    if not there or (name and not name.startswith("/")) or "/" in name[1:]:
        return None
    return name[1:] if not name or name.endswith((".conf", ".conflist", ".json")) else None


def _path_like(path: str, name: str) -> str:
    """Return the path of another file of the folder, as a program has it mounted."""
    path = posixpath.normpath(path)
    return f"{path if path.endswith(FOLDER) else posixpath.dirname(path)}/{name}"


def calls(host: Host, configuration: Configuration) -> Iterator[PluginCall]:
    """Yield every plugin that is called for a pod, in order, also by Multus; raise DelegationError."""
    yield from _calls(host, configuration.raw, (configuration.name,), 0)


def _calls(host: Host, raw: object, files: tuple[str, ...], depth: int) -> Iterator[PluginCall]:
    for entry in entries_of(raw):
        yield PluginCall(str(entry.get("type")), depth)
        if entry.get("type") not in MULTUS:
            continue
        path, delegates = entry.get("clusterNetwork"), entry.get("delegates")
        if isinstance(path, str) and path:
            yield from _calls_of(host, entry, path, files, depth + 1)
        elif isinstance(delegates, list):
            for each in delegates:
                yield from _calls(host, each, files, depth + 1)


def _calls_of(
    host: Host, entry: Mapping[str, Any], network: str, files: tuple[str, ...], depth: int
) -> Iterator[PluginCall]:
    """Yield the plugins that Multus calls for a path or a name."""
    name = _target(host, entry, network)
    if name is None:
        return  # A NetworkAttachmentDefinition, or a path elsewhere, from which nothing leads back to the folder.
    if name in files:
        raise DelegationError(f"calls itself without end: {' -> '.join((*files, name))}")
    if (text := host.text(f"{FOLDER}/{name}")) is None:
        raise DelegationError(f"Multus would call {name!r}, which is not in {FOLDER!r}: pods get no network")
    yield from _calls(host, json_of(text), (*files, name), depth)
