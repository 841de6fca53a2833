"""Keep an annotation of the node equal to the desired text.

A `Publisher` gets the desired and the observed text, and patches the annotation whenever they differ: at the start,
after a change, and when another writer has edited or removed it. It sends at most one patch a second, and retries a
failed patch with the text that is desired then. It writes nothing before both texts are known.
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
    """Patch only the inventory annotation of the node; raise KubeError."""
    await _patch_annotation(client, node, names.INVENTORY, text)


async def patch_gpu_inventory(client: Client, node: str, text: str) -> None:
    """Patch only the GPU inventory annotation of the node; raise KubeError."""
    await _patch_annotation(client, node, KEY, text)


async def patch_rates_in_force(client: Client, node: str, text: str) -> None:
    """Patch only the annotation with the changed rates in force; remove it if ``text`` is empty. Raise KubeError."""
    await _patch_annotation(client, node, names.RATES_IN_FORCE, text or None)


async def _patch_annotation(client: Client, node: str, key: str, text: str | None) -> None:
    patch = json.dumps({"metadata": {"annotations": {key: text}}}).encode()
    await client.request("PATCH", node_path(node), patch, content_type=MERGE_PATCH)


async def patch_resources(client: Client, node: str, text: str) -> None:
    """Patch only capacity and allocatable of our resources in the node's status; raise KubeError."""
    patch = f'{{"status":{text}}}'.encode()
    await client.request("PATCH", f"{node_path(node)}/status", patch, content_type=MERGE_PATCH)


Patch = Callable[[Client, str, str], Awaitable[None]]


class Publisher:
    """Writes one node's inventory or, with another ``patch`` function, another text of ours on the node.

    ``on_patch`` is called after each patch, for the metrics.
    """

    def __init__(
        self, client: Client, node: str, on_patch: Callable[[], None] = lambda: None, patch: Patch = patch_inventory
    ) -> None:
        self._client = client
        self._node = node
        self._on_patch = on_patch
        self._patch = patch
        self._desired_state: str | None = None
        self._observed_state: str | None = None
        self._exists = False
        self._changed = asyncio.Event()

    def set_desired_state(self, text: str) -> None:
        """Set the desired text."""
        self._desired_state = text
        self._changed.set()

    def set_observed_state(self, text: str | None) -> None:
        """Set the node's current text, None if it has none."""
        self._observed_state, self._exists = text, True
        self._changed.set()

    def node_gone(self) -> None:
        """Record that the node does not exist."""
        self._exists = False

    @property
    def observed_state(self) -> str | None:
        """The node's current text; None if it has none or is unknown."""
        return self._observed_state

    @property
    def is_published(self) -> bool:
        """Return whether the node has the desired text."""
        return self._exists and self._desired_state is not None and self._desired_state == self._observed_state

    async def run(self) -> None:
        """Write whenever it is due; never return."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._due():
                await self._write(node_path(self._node))
                await asyncio.sleep(BETWEEN_PATCHES_S)

    def _due(self) -> bool:
        return self._exists and self._desired_state is not None and self._desired_state != self._observed_state

    @retry
    async def _write(self, _path: str) -> None:
        """Try once to write the desired text; the path is used only by the caller's retry log."""
        text = self._desired_state
        if text is None or not self._due():
            return
        await self._patch(self._client, self._node, text)
        self._observed_state = text
        # Compare again: the texts may have changed during the request.
        self._changed.set()
        self._on_patch()
        _log.info("published", node=self._node, what=self._patch.__name__, bytes=len(text.encode()))
