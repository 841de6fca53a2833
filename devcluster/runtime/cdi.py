"""CDI for the fake runtime: which device nodes a container gets for the names of its CDI devices. JSON files only."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path


class CdiError(LookupError):
    """A CDI device that no specification has."""


def device_nodes(folder: Path, names: Iterable[str]) -> Sequence[tuple[str, str]]:
    """Return (path in the container, path on the host) of each device node; raise CdiError."""
    wanted = list(names)
    known = _devices(folder) if wanted else {}
    if missing := [name for name in wanted if name not in known]:
        raise CdiError(f"CDI device injection failed: unresolvable CDI devices {', '.join(missing)}")
    return [node for name in wanted for node in known[name]]


def _devices(folder: Path) -> dict[str, list[tuple[str, str]]]:
    found = {}
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text())
        for device in document["devices"]:
            nodes = device["containerEdits"].get("deviceNodes", [])
            pairs = [(node["path"], node.get("hostPath", node["path"])) for node in nodes]
            found[f"{document['kind']}={device['name']}"] = pairs
    return found
