"""Publish once: ask the cluster, look at the host, write if the two differ."""

import asyncio

import msgspec

from advertiser.formats.cluster_facts import Node, Pod, PodClaims
from advertiser.inventory.facts import Claims, Holding
from advertiser.publish.cluster_view import read_drained
from advertiser.publish.publisher import node_path, patch_inventory
from advertiser.publish.scanner import Looker
from mooring import names
from mooring.inventory import dump_inventory
from mooring.kube.client import Client
from mooring.kube.retry import until_definite
from mooring.kube.watch import Decoder, watch


async def publish_once(client: Client, looker: Looker) -> None:
    """Publish what the host offers now; raise KubeError, NotFound where there is no such node."""
    get, patch = until_definite(client.request), until_definite(patch_inventory)
    node = msgspec.json.decode(await get("GET", node_path(looker.node)), type=Node)
    annotations = node.metadata.annotations or {}
    drained = read_drained(annotations.get(names.DRAIN), looker.node) or frozenset()
    claims = Claims(await _explained(client, looker.node), drained)
    look = await asyncio.to_thread(looker.look, claims)
    text = dump_inventory(look.survey.inventory)
    if annotations.get(names.INVENTORY) != text:
        await patch(client, looker.node, text)


async def _explained(client: Client, node: str) -> frozenset[Holding] | None:
    pods = PodClaims(node)
    async for event in watch(client, "/api/v1/pods", Decoder(Pod), {"fieldSelector": f"spec.nodeName={node}"}):
        # The first is the whole list.
        pods.take(event)
        break
    return pods.explained
