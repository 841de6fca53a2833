"""Publish once: read the cluster, scan the host, write if the two differ."""

import asyncio

import msgspec

from advertiser.formats.cluster_facts import Node
from advertiser.inventory.debounce import CONFIRM_S, DebounceResult, ScanPeriod, debounce
from advertiser.inventory.facts import ClusterFacts
from advertiser.publish.cluster_view import read_drain_entries
from advertiser.publish.publisher import Patch, node_path, patch_gpu_inventory, patch_inventory
from advertiser.publish.scanner import Scanner
from mooring import names
from mooring.annotations.inventory import Inventory, dump_inventory
from mooring.gpu.inventory import KEY, dump_gpu_inventory
from mooring.kube.answers import check_object
from mooring.kube.client import Client
from mooring.kube.failures import Status, Unknown
from mooring.kube.retry import until_definite

_MOST_LOOKS = 3


async def publish_inventory(client: Client, scanner: Scanner) -> None:
    """Publish what the host offers now; raise KubeError, which is NotFound if the node does not exist."""
    node = await _read_node(client, node_path(scanner.node))
    annotations = node.metadata.annotations or {}
    drain = read_drain_entries(annotations.get(names.DRAIN), scanner.node) or frozenset()
    cluster_facts = ClusterFacts(drained=drain)
    texts: dict[str, tuple[Patch, str]] = {}
    texts[names.INVENTORY] = patch_inventory, dump_inventory(await _confirm(scanner, cluster_facts))
    if scanner.gpus is not None:
        gpus = await asyncio.to_thread(scanner.gpus.inventory, scanner.node)
        texts[KEY] = patch_gpu_inventory, dump_gpu_inventory(gpus)
    for key, (patch, text) in texts.items():
        if annotations.get(key) != text:
            await until_definite(patch)(client, scanner.node, text)


@until_definite
async def _read_node(client: Client, path: str) -> Node:
    """Return the node; raise Unknown for an incomplete answer, by which drained PFs would be offered."""
    try:
        return msgspec.json.decode(check_object("Node", await client.request("GET", path)), type=Node)
    except msgspec.MsgspecError as unreadable:
        raise Unknown(Status(200, message=f"GET {path}: {unreadable}")) from unreadable


async def _confirm(scanner: Scanner, cluster_facts: ClusterFacts) -> Inventory:
    """Return the inventory; scan again while a reason may be transient, but not endlessly."""
    now = asyncio.get_running_loop().time
    result = DebounceResult(Inventory("", ()), pending=True)
    for look in range(_MOST_LOOKS):
        if look:
            await asyncio.sleep(CONFIRM_S)
        began_s = now()
        scan = await asyncio.to_thread(scanner.scan, cluster_facts)
        result = debounce(scan.result.inventory, result.sightings, ScanPeriod(began_s, now()))
        if not result.pending:
            break
    return result.inventory
