"""The network configuration that the runtime uses: the node's own, with mooring-cni chained behind it.

Runtimes use the first configuration of their folder in the byte order of names. The one found there is not changed, so
that its owner may continue to write it. Ours is a copy with one more plugin, under a name that sorts before it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cli.node.errors import NodeError
from cli.node.plan.states import Change, File, Host, PathChange

FOLDER = "/etc/cni/net.d"
PLUGIN = "mooring-cni"
_ENDINGS = (".conf", ".conflist", ".json")  # What containerd and CRI-O read.
# Our names, the preferred one first; each sorts before the previous one.
_OURS = ("00-mooring.conflist", "00-0-mooring.conflist", "0-mooring.conflist", "!mooring.conflist")
_LEAST = "0.4.0"  # The oldest version that mooring-cni supports; older lists are read as this one.


def chain(host: Host, plugin: Mapping[str, Any]) -> list[Change]:
    """Return the change that chains mooring-cni, if any; raise NodeError if no configuration exists to chain to.

    ``plugin`` is the operator's part of mooring-cni's own entry: ipam, networks, ….
    """
    first, document = _first(host)
    if any(_is_ours(entry) for entry in document["plugins"]):
        return []
    path = f"{FOLDER}/{_name_before(first)}"
    wanted = File(json.dumps(_chained(document, plugin), indent=2) + "\n")
    stale = [f"{FOLDER}/{name}" for name in _ours(host) if f"{FOLDER}/{name}" != path]
    moved: list[Change] = [PathChange(old, host.at(old), None) for old in stale]
    placed = [] if host.at(path) == wanted else [PathChange(path, host.at(path), wanted, host.missing_folder(path))]
    return [*placed, *moved]


def _first(host: Host) -> tuple[str, dict[str, Any]]:
    """Return name and content of the first configuration that is not ours; a single plugin as a list of one."""
    names = [name for name in host.below(FOLDER) if name.endswith(_ENDINGS) and name not in _OURS]
    if not names:
        raise NodeError(
            f"folder {FOLDER!r} has no network configuration: install the cluster's first, or --network none"
        )
    return names[0], _read(names[0], host.text(f"{FOLDER}/{names[0]}") or "")


def _read(name: str, text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
        plugins = document["plugins"] if name.endswith(".conflist") else [document]
        types = [entry["type"] for entry in plugins]
        read = {"cniVersion": document.get("cniVersion", _LEAST), "name": document["name"], "plugins": plugins}
    except (ValueError, KeyError, TypeError, AttributeError) as wrong:
        raise NodeError(f"network configuration {name!r} in {FOLDER!r} cannot be read: {wrong!r}") from wrong
    if not types:
        raise NodeError(f"network configuration {name!r} in {FOLDER!r} has no plugin")
    options = document if name.endswith(".conflist") else {}
    return {**options, **read}


def _chained(document: Mapping[str, Any], plugin: Mapping[str, Any]) -> dict[str, Any]:
    capabilities = {"io.kubernetes.cri.pod-annotations": True, **plugin.get("capabilities", {})}
    ours = {"type": PLUGIN, **plugin, "capabilities": capabilities}
    version = max(str(document["cniVersion"]), _LEAST, key=_numbers)
    return {**document, "cniVersion": version, "plugins": [*document["plugins"], ours]}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def _name_before(first: str) -> str:
    found = next((name for name in _OURS if name.encode() < first.encode()), None)
    if found is None:
        raise NodeError(f"no name comes before {first!r} in {FOLDER!r}: rename that file")
    return found


def _ours(host: Host) -> Sequence[str]:
    return [name for name in host.below(FOLDER) if name in _OURS and _plugins_of_ours(host, name)]


def _plugins_of_ours(host: Host, name: str) -> bool:
    return any(_is_ours(entry) for entry in _entries(host.text(f"{FOLDER}/{name}") or ""))


def _entries(text: str) -> Iterator[object]:
    try:
        document = json.loads(text)
    except ValueError:
        return
    if isinstance(document, dict) and isinstance(document.get("plugins"), list):
        yield from document["plugins"]


def _is_ours(entry: object) -> bool:
    return isinstance(entry, dict) and entry.get("type") == PLUGIN
