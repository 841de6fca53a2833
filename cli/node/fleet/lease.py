"""Keep the turns of a fleet in an annotation of one Lease, which the manifests create."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from cli.node.plan.turns import KEY, Turns, dump_turns, read_turns
from mooring.errors import AnnotationError
from mooring.kube.answers import check_object
from mooring.kube.client import Client
from mooring.kube.failures import KubeError, Status
from mooring.parsing import decode


class LeaseStore:
    """The Lease ``namespace/name``; ``holderIdentity`` and ``renewTime`` show people who wrote last, and when."""

    def __init__(self, client: Client, namespace: str, name: str, node: str) -> None:
        self._client = client
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"
        self._node = node
        # The last Lease that was read, whose other fields a write keeps.
        self._lease: Mapping[str, Any] = {}

    async def read(self, *, cached: bool = False) -> tuple[Turns, str]:
        """Return the turns and their version; ``cached``: as the API server's cache has them, without etcd."""
        params = {"resourceVersion": "0"} if cached else None
        answer = check_object("Lease", await self._client.request("GET", self._path, params=params))
        self._lease = lease = decode(answer)
        try:
            turns = read_turns((lease["metadata"].get("annotations") or {}).get(KEY))
        except AnnotationError as wrong:
            # Nobody can go on until a person removes it, so it is retried like an answer that is missing.
            raise KubeError(Status(0, message=f"Lease {lease['metadata']['name']!r}: {wrong}")) from wrong
        return turns, str(lease["metadata"]["resourceVersion"])

    async def write(self, turns: Turns, version: str) -> None:
        metadata, spec = self._lease["metadata"], self._lease.get("spec") or {}
        annotations = {**(metadata.get("annotations") or {}), KEY: dump_turns(turns)}
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        lease = {
            **self._lease,
            "metadata": {**metadata, "resourceVersion": version, "annotations": annotations},
            "spec": {**spec, "holderIdentity": self._node, "renewTime": now},
        }
        await self._client.request("PUT", self._path, json.dumps(lease).encode())
