"""Handle plugins that call a whole configuration: follow Multus, and reject others.

Multus with `multusConfFile: auto` calls the first configuration of the folder that is not its own; after an
installation that is ours. The thin plugin copies it into ``delegates`` (getMasterConfigPath and createMultusConfig in
multus-cni's cmd/thin_entrypoint/main.go), the daemon writes its path into ``clusterNetwork`` (findMasterPlugin and
GenerateConfig in pkg/server/config). An operator can also write the name of a network there, which Multus looks up in
``confDir`` if no NetworkAttachmentDefinition has it (getNetDelegate in pkg/k8sclient/k8sclient.go).

Our chain is a copy of Multus' configuration, so with that entry it would call itself endlessly. Therefore our copy
calls instead the first configuration that is neither Multus' nor ours, as Multus would without Mooring. The result does
not depend on whether Multus started before or after the installation.
"""

import posixpath
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cli.node.errors import NodeError
from cli.node.plan.cni_folder import (
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
    """Multus would call itself, or a configuration that does not exist."""


@dataclass(frozen=True, slots=True)
class PluginCall:
    """A plugin that is called for a pod; ``depth`` counts the plugins that delegate to it."""

    type: str
    depth: int


def capabilities(plugin: Mapping[str, Any]) -> dict[str, Any]:
    """Return the capabilities that the runtime should pass to mooring-cni."""
    return {_ANNOTATIONS: True, **plugin.get("capabilities", {})}


def refuse_others(folder: str, configuration: Configuration) -> None:
    """Raise NodeError for a plugin other than Multus that calls another configuration of the folder, or a copy."""
    for entry in configuration.plugins:
        kind = entry.get("type")
        if kind in MULTUS or not (kind in _BY_FOLDER or _is_configuration(folder, [*entry.values()])):
            continue
        raise NodeError(
            f"plugin {kind!r} of {configuration.name!r} in {folder!r} calls another configuration there, and would "
            f"call itself in a copy: configure it to call the cluster network's file, add {PLUGIN} as the last plugin "
            "there, and use --network none"
        )


def _is_configuration(folder: str, value: object) -> bool:
    """Return whether a value is the path of a configuration in the folder, or a whole configuration."""
    if isinstance(value, str):
        return _file_of(folder, value) not in (None, "")
    if isinstance(value, list):
        return any(_is_configuration(folder, each) for each in value)
    if not isinstance(value, dict):
        return False
    is_whole = isinstance(value.get("plugins"), list) or {"type", "name"} <= value.keys()
    return is_whole or any(_is_configuration(folder, each) for each in value.values())


def without_ours(
    host: Host, configuration: Configuration, ours: Collection[str], plugin: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a configuration, as a list, that does not lead to ours; raise NodeError if no other one exists to call."""
    return list_of(raw_without_ours(host, configuration, ours, plugin))


def raw_without_ours(
    host: Host, configuration: Configuration, ours: Collection[str], plugin: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a configuration's JSON without our plugin and without Multus entries that call our chain."""

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
    """Return an entry of Multus, in a configuration called ``name``, changed so that it does not call our chain."""
    folder = host.cni.conf
    cluster = next(
        (configuration for configuration in configurations(host, ours) if not _is_of_multus(configuration)), None
    )
    path, delegates = entry.get("clusterNetwork"), entry.get("delegates")
    if isinstance(path, str) and path:
        if not _leads_to(host, entry, path, ours, name):
            return entry
        changed = {**entry, "clusterNetwork": _path_like(folder, _place(entry, path), _needed(folder, cluster).name)}
    elif isinstance(delegates, list) and any(map(_is_copy_of_ours, delegates)):
        instead = [
            dict(_needed(folder, cluster).raw) if _is_copy_of_ours(delegate) else delegate for delegate in delegates
        ]
        changed = {**entry, "delegates": instead}
    else:
        return entry
    # Remove capabilities that are there only because Multus called our chain.
    gone = capabilities(plugin).keys() - _capabilities_of(_needed(folder, cluster).raw)
    left = {name: value for name, value in (entry.get("capabilities") or {}).items() if name not in gone}
    others = {name: value for name, value in changed.items() if name != "capabilities"}
    return others | ({"capabilities": left} if left else {})


def _needed(folder: str, cluster: Configuration | None) -> Configuration:
    if cluster is None:
        raise NodeError(f"Multus calls Mooring's own chain, and folder {folder!r} has no other network configuration")
    return cluster


def _is_copy_of_ours(delegate: object) -> bool:
    return any(is_ours(entry) for entry in entries_of(delegate))


def _is_of_multus(configuration: Configuration) -> bool:
    return any(entry.get("type") in MULTUS for entry in configuration.plugins)


def _capabilities_of(raw: Mapping[str, Any]) -> frozenset[str]:
    named = (entry.get("capabilities") for entry in entries_of(raw))
    return frozenset(name for each in named if isinstance(each, dict) for name in each)


def _leads_to(host: Host, entry: Mapping[str, Any], network: str, ours: Collection[str], name: str) -> bool:
    """Return whether ``network`` (a path or a name) leads to our chain; that has the ``name`` of what it copies."""
    if "/" in network:
        return _target(host, entry, network) in ours
    return network == name and _file_of(host.cni.conf, _place(entry, network)) == ""


def _target(host: Host, entry: Mapping[str, Any], network: str) -> str | None:
    """Return the file of the folder that Multus reads for a path or a name, for a folder's path its first file.

    Values without a slash are names. None if ``network`` does not lead to the folder.
    """
    file = _file_of(host.cni.conf, _place(entry, network))
    if file != "":
        return file
    name = None if "/" in network else network
    return next(
        (configuration.name for configuration in configurations(host) if name in (None, configuration.raw["name"])),
        None,
    )


def _place(entry: Mapping[str, Any], network: str) -> str:
    """Return the path that Multus reads: a path as it is, for a name ``confDir``."""
    folder = entry.get("confDir")
    return network if "/" in network else folder if isinstance(folder, str) else ""


def _file_of(folder: str, path: str) -> str | None:
    """Return a path's file name in the folder, empty for the folder itself; the folder may be mounted elsewhere.

    A file with one of our chain's names counts as ours in any folder.
    """
    path = posixpath.normpath(path)
    if (own := posixpath.basename(path)) in OURS:
        return own
    _, there, name = path.rpartition(folder)
    if not there or (name and not name.startswith("/")) or "/" in name[1:]:
        return None
    return name[1:] if not name or name.endswith((".conf", ".conflist", ".json")) else None


def _path_like(folder: str, path: str, name: str) -> str:
    """Return the path of the file ``name`` in the same folder, as mounted for the program that uses ``path``."""
    path = posixpath.normpath(path)
    return f"{path if path.endswith(folder) else posixpath.dirname(path)}/{name}"


def calls(host: Host, configuration: Configuration) -> Iterator[PluginCall]:
    """Yield every plugin that is called for a pod, in order, including Multus' delegates; raise DelegationError."""
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
            for delegate in delegates:
                yield from _calls(host, delegate, files, depth + 1)


def _calls_of(
    host: Host, entry: Mapping[str, Any], network: str, files: tuple[str, ...], depth: int
) -> Iterator[PluginCall]:
    """Yield the plugins that Multus calls for a path or a name."""
    name = _target(host, entry, network)
    if name is None:
        return  # A NetworkAttachmentDefinition or a path elsewhere, which cannot lead back to the folder.
    if name in files:
        raise DelegationError(f"calls itself endlessly: {' -> '.join((*files, name))}")
    if (text := host.text(f"{host.cni.conf}/{name}")) is None:
        raise DelegationError(f"Multus would call {name!r}, which is not in {host.cni.conf!r}: pods get no network")
    yield from _calls(host, json_of(text), (*files, name), depth)
