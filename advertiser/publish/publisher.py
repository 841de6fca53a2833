"""Keep the node's annotation equal to what the host offers: write it only when it differs.

Takes the wanted text and the node's current one. Patches our own keys whenever the two differ: at the start, after a
change, and when another writer edited or removed it. It sends at most one patch a second, and repeats a patch that
fails, with the text that is wanted by then. It writes nothing while both are equal, and nothing before both are known.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable

import structlog

from mooring import names
from mooring.gpu.inventory import KEY
from mooring.kube.client import MERGE_PATCH, Client
from mooring.kube.retry import retry

_log = structlog.get_logger()
# A link that flaps costs its node at most one write a second.
BETWEEN_PATCHES_S = 1.0


def node_path(node: str) -> str:
    return f"/api/v1/nodes/{node}"


async def patch_inventory(client: Client, node: str, text: str) -> None:
    """Write the annotation and nothing else of the node; raise KubeError."""
    await _patch_annotation(client, node, names.INVENTORY, text)


async def patch_gpu_inventory(client: Client, node: str, text: str) -> None:
    """Write the annotation of the node's GPUs and nothing else of the node; raise KubeError."""
    await _patch_annotation(client, node, KEY, text)


async def patch_rates_in_force(client: Client, node: str, text: str) -> None:
    """Write which changed rates are in force, or remove it for an empty text, and nothing else; raise KubeError."""
    await _patch_annotation(client, node, names.RATES_IN_FORCE, text or None)


async def _patch_annotation(client: Client, node: str, key: str, text: str | None) -> None:
    patch = json.dumps({"metadata": {"annotations": {key: text}}}).encode()
    await client.request("PATCH", node_path(node), patch, content_type=MERGE_PATCH)


async def patch_resources(client: Client, node: str, text: str) -> None:
    """Write capacity and allocatable of our resources and nothing else of the node's status; raise KubeError."""
    patch = f'{{"status":{text}}}'.encode()
    await client.request("PATCH", f"{node_path(node)}/status", patch, content_type=MERGE_PATCH)


Patch = Callable[[Client, str, str], Awaitable[None]]


class Publisher:
    """The writer of one node's inventory, or by another ``patch`` of something else that is ours on the node.

    ``patched`` is called after each patch, for the metrics.
    """

    def __init__(
        self, client: Client, node: str, patched: Callable[[], None] = lambda: None, patch: Patch = patch_inventory
    ) -> None:
        self._client = client
        self._node = node
        self._patched = patched
        self._patch = patch
        self._desired: str | None = None
        self._observed: str | None = None
        self._exists = False
        self._changed = asyncio.Event()

    def set_desired(self, text: str) -> None:
        """Take the text that the node should have from now on."""
        self._desired = text
        self._changed.set()

    def set_observed(self, text: str | None) -> None:
        """Take the node's current text, None if it has none."""
        self._observed, self._exists = text, True
        self._changed.set()

    def node_gone(self) -> None:
        """Record that the node does not exist."""
        self._exists = False

    @property
    def observed(self) -> str | None:
        """The node's current text, as far as it is known; None if it has none."""
        return self._observed

    @property
    def published(self) -> bool:
        """Return whether the node has the wanted text."""
        return self._exists and self._desired is not None and self._desired == self._observed

    async def run(self) -> None:
        """Write whenever it is due; never return."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._due():
                await self._write(node_path(self._node))
                await asyncio.sleep(BETWEEN_PATCHES_S)

    def _due(self) -> bool:
        return self._exists and self._desired is not None and self._desired != self._observed

    @retry
    async def _write(self, _path: str) -> None:
        """Make one attempt with the currently wanted text; ``path`` is for the log of repetitions."""
        text = self._desired
        if text is None or not self._due():
            return
        await self._patch(self._client, self._node, text)
        self._observed = text
        # Changes that arrived during the request are compared again.
        self._changed.set()
        self._patched()
        _log.info("published", node=self._node, what=self._patch.__name__, bytes=len(text.encode()))
