"""Multus' own start on a host below a folder, and what a runtime then calls for a pod.

As multus-cni writes its configuration with `multusConfFile: auto`: the thin plugin by createMultusConfig in
cmd/thin_entrypoint/main.go, the daemon by findMasterPlugin, setCapabilities and Generate in pkg/server/config.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.cli.node.conftest import NodeHost

FOLDER = "/etc/cni/net.d"
Start = Callable[[NodeHost], None]


def names(host: NodeHost) -> list[str]:
    return sorted(path.name for path in (host.root / FOLDER.lstrip("/")).iterdir() if path.is_file())


def _configurations(host: NodeHost, without: str) -> list[str]:
    return [name for name in names(host) if name.endswith((".conf", ".conflist")) and not name.startswith(without)]


def _capabilities(document: Mapping[str, Any]) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for plugin in document.get("plugins", [document]):
        found |= {name: True for name, is_on in plugin.get("capabilities", {}).items() if is_on}
    return found


def start_daemon(host: NodeHost) -> None:
    """Start the thick plugin: it names the path of the configuration that it calls."""
    first = _configurations(host, "00-multus")[0]
    document = {
        "capabilities": _capabilities(json.loads(host.text(f"{FOLDER}/{first}"))),
        "cniVersion": "0.3.1",
        "logLevel": "verbose",
        "logToStderr": True,
        "name": "multus-cni-network",
        "clusterNetwork": f"/host{FOLDER}/{first}",
        "type": "multus-shim",
    }
    host.write(f"{FOLDER}/00-multus.conf", json.dumps({key: value for key, value in document.items() if value}))


def start_thin(host: NodeHost) -> None:
    """Start the thin plugin, as kubespray does too: it copies the configuration that it calls."""
    master = json.loads(host.text(f"{FOLDER}/{_configurations(host, '00-multus.conf')[0]}"))
    entry: dict[str, Any] = {"type": "multus"}
    if capabilities := _capabilities(master):
        entry["capabilities"] = capabilities
    entry |= {"kubeconfig": f"{FOLDER}/multus.d/multus.kubeconfig", "delegates": [master]}
    head = {"cniVersion": master["cniVersion"], "name": "multus-cni-network"}
    if master["cniVersion"] >= "1.0.0":
        host.write(f"{FOLDER}/00-multus.conflist", json.dumps({**head, "plugins": [entry]}))
    else:
        host.write(f"{FOLDER}/00-multus.conf", json.dumps({**head, **entry}))


def stop(host: NodeHost) -> None:
    """Stop Multus, which takes its configuration away."""
    for path in (host.root / FOLDER.lstrip("/")).glob("00-multus.conf*"):
        path.unlink()


STARTS: Mapping[str, Start] = {"daemon": start_daemon, "thin": start_thin}


def called(host: NodeHost) -> list[str]:
    """Return the plugins that a runtime has called for a pod, also by Multus; fail for a chain without end."""
    return _called(host, json.loads(host.text(f"{FOLDER}/{names(host)[0]}")), 0)


def _called(host: NodeHost, document: Mapping[str, Any], depth: int) -> list[str]:
    assert depth < 5, "the chain calls itself endlessly"
    found: list[str] = []
    for plugin in document.get("plugins", [document]):
        found.append(plugin["type"])
        if "clusterNetwork" in plugin:
            found += _called(host, _cluster_network(host, plugin["clusterNetwork"]), depth + 1)
        for delegate in plugin.get("delegates", ()):
            found += _called(host, delegate, depth + 1)
    return found


def _cluster_network(host: NodeHost, network: str) -> dict[str, Any]:
    """Return the configuration at a path, or the first one of a name (getNetDelegate in pkg/k8sclient)."""
    files = [Path(network).name] if "/" in network else names(host)
    documents: list[dict[str, Any]] = [json.loads(host.text(f"{FOLDER}/{name}")) for name in files]
    return next(document for document in documents if "/" in network or document["name"] == network)
