"""Keep what the node says equal to what the host offers: written when it differs, and never else.

Takes the text wanted and what the node says now; patches our own keys whenever the two differ: at the start, after a
change, and when somebody edited or removed it. At most one patch a second; a patch that fails is repeated, with the
text that is wanted by then; nothing is written at rest, and nothing before both are known.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable

import structlog

from mooring import names
from mooring.kube.client import MERGE_PATCH, Client
from mooring.kube.retry import retry

_log = structlog.get_logger()
# A link that flaps costs its node one write a second at the most.
BETWEEN_PATCHES_S = 1.0


def node_path(node: str) -> str:
    return f"/api/v1/nodes/{node}"


async def patch_inventory(client: Client, node: str, text: str) -> None:
    """Write the annotation and nothing else of the node; raise KubeError."""
    patch = json.dumps({"metadata": {"annotations": {names.INVENTORY: text}}}).encode()
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
        """Take the text that the node should carry from now on."""
        self._desired = text
        self._changed.set()

    def set_observed(self, text: str | None) -> None:
        """Take what the node carries now, None where it carries nothing."""
        self._observed, self._exists = text, True
        self._changed.set()

    def node_gone(self) -> None:
        """Note that there is no such node."""
        self._exists = False

    @property
    def published(self) -> bool:
        """Return whether the node carries what it should."""
        return self._exists and self._desired is not None and self._desired == self._observed

    async def run(self) -> None:
        """Write whenever it is due; return never."""
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
        """Make one attempt with the text that is wanted by now; the path is there for the log of repetitions."""
        text = self._desired
        if text is None or not self._due():
            return
        await self._patch(self._client, self._node, text)
        self._observed = text
        # What came while the answer was under way is compared again.
        self._changed.set()
        self._patched()
        _log.info("published", node=self._node, what=self._patch.__name__, bytes=len(text.encode()))
