"""What a fleet reads of its Node objects: whether a node is Ready, and whether it still belongs to the fleet."""

import json
from collections.abc import Mapping
from typing import Any

from mooring.kube.answers import check_object
from mooring.kube.client import Client
from mooring.kube.failures import KubeError, NotFound

# Of the nodes that the installer's DaemonSet selects.
LABEL = "mooring.dev/node"


class KubeNodes:
    """The Node objects. An API server that does not answer, or grants no right, keeps no node from its turn."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def unready(self, name: str) -> str:
        """Return why a node is not Ready, empty if it is."""
        try:
            node = await self._read(name)
        except NotFound:
            return f"node {name!r} does not exist"
        except KubeError:
            return ""
        conditions = (node.get("status") or {}).get("conditions") or ()
        none: Mapping[str, Any] = {}
        ready = next((condition for condition in conditions if condition.get("type") == "Ready"), none)
        if ready.get("status") == "True":
            return ""
        return f"node {name!r} is not Ready: {ready.get('reason', '')}: {ready.get('message', '')}"

    async def has_left(self, name: str) -> bool:
        """Return whether a node does not exist any more, or has lost the fleet's label."""
        try:
            return LABEL not in ((await self._read(name))["metadata"].get("labels") or {})
        except NotFound:
            return True
        except KubeError:
            return False

    async def _read(self, name: str) -> Mapping[str, Any]:
        """Return a node as the API server's cache has it; raise KubeError."""
        answer = await self._client.request("GET", f"/api/v1/nodes/{name}", params={"resourceVersion": "0"})
        node: Mapping[str, Any] = json.loads(check_object("Node", answer))
        return node
