"""Write the network status of this node's pods into their annotations, unless Multus or another program does.

The advertiser has no right to read pods. Instead it sends a patch without changes, whose answer is the pod; the
admission policy allows that only for pods of its own node. The write that follows has the pod's resourceVersion as a
precondition, so that it overwrites no concurrent change. Each status is written once. A status of another writer is
left alone.
"""

import json
from collections.abc import Iterable, Mapping

import msgspec
import structlog

from advertiser.formats.network_status import KEY, NetworkStatus, is_another_writers
from mooring.kube.answers import check_object
from mooring.kube.client import MERGE_PATCH, Client
from mooring.kube.failures import Conflict, Denied, KubeError, NotFound, Status, Throttled, Unknown
from mooring.kube.lanes import Lane, Lanes
from mooring.kube.namespace_turns import NamespaceTurns

_log = structlog.get_logger()
# The kubelet writes a pod's status in bursts while the pod starts, and each write can conflict with ours.
_MOST_CONFLICTS = 8
# The number of concurrent writes.
_WRITES = 4


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str
    resource_version: str
    annotations: dict[str, str] | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata


class NetworkStatusWriter:
    """Writes the network status of one node's pods."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._statuses: Mapping[str, NetworkStatus] = {}
        self._results: dict[str, NetworkStatus] = {}
        self._turns = NamespaceTurns[NetworkStatus]()
        self._lanes = Lanes([Lane(self._turns, self._settle, _fields)], _WRITES)

    def set_statuses(self, statuses: Iterable[NetworkStatus]) -> None:
        """Set the current statuses of this node's pods."""
        self._statuses = {status.uid: status for status in statuses}
        self._results = {uid: status for uid, status in self._results.items() if uid in self._statuses}
        for status in sorted(status for uid, status in self._statuses.items() if self._results.get(uid) != status):
            self._turns.put(status.pod.partition("/")[0], status.uid, status)
            self._lanes.wake()

    async def run(self) -> None:
        """Write statuses as they arrive; never return."""
        await self._lanes.run()

    async def _settle(self, status: NetworkStatus) -> None:
        """Write a status unless the pod has a newer one by now; raise errors after which a retry can succeed."""
        if self._statuses.get(status.uid) != status or self._results.get(status.uid) == status:
            return
        namespace, _, name = status.pod.partition("/")
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        try:
            await self._write(path, status)
        except (Denied, Throttled, Unknown):
            raise
        except NotFound:
            pass
        except KubeError as error:
            _log.warning("network status not written", pod=status.pod, uid=status.uid, reason=str(error))
            if isinstance(error, Conflict):
                # The next scan tries again.
                return
        self._results[status.uid] = status

    async def _write(self, path: str, status: NetworkStatus) -> None:
        for attempt in range(_MOST_CONFLICTS):
            pod = await self._patch(path, {"uid": status.uid})
            annotations = pod.metadata.annotations or {}
            if is_another_writers(annotations):
                _log.info("network status belongs to another writer", pod=status.pod, uid=status.uid)
                return
            if annotations.get(KEY) == status.text:
                return
            version = pod.metadata.resource_version
            metadata = {"uid": status.uid, "resourceVersion": version, "annotations": dict(status.annotations)}
            try:
                await self._patch(path, metadata)
            except Conflict:
                if attempt + 1 == _MOST_CONFLICTS:
                    raise
                continue
            _log.info("network status written", pod=status.pod, uid=status.uid)
            return

    async def _patch(self, path: str, metadata: Mapping[str, object]) -> _Pod:
        body = json.dumps({"metadata": metadata}).encode()
        answer = check_object("Pod", await self._client.request("PATCH", path, body, MERGE_PATCH))
        try:
            return msgspec.json.decode(answer, type=_Pod)
        except msgspec.MsgspecError as unreadable:
            raise Unknown(Status(200, message=f"PATCH {path}: {unreadable}")) from unreadable


def _fields(status: NetworkStatus) -> Mapping[str, str]:
    return {"pod": status.pod, "uid": status.uid}
