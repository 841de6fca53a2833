"""Evict a pod through policy/v1, so that disruption budgets and admission apply."""

import msgspec
import structlog

from mooring.kube.client import Client
from mooring.kube.failures import Conflict, KubeError, NotFound
from mooring.kube.write import PATIENCE_S
from scheduler.cycle.instructions import Evict, EvictionResult

_log = structlog.get_logger()


def eviction(order: Evict) -> bytes:
    """Return the body; the uid in it is a precondition."""
    pod = order.pod.metadata
    return msgspec.json.encode(
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
    )


async def evict(client: Client, order: Evict) -> EvictionResult:
    """Send one request; the machine tries again later if the API server rejected it or did not answer."""
    pod = order.pod.metadata
    fields = {"pod": order.pod.key, "uid": pod.uid, "reason": order.reason}
    try:
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction"
        await client.request("POST", path, eviction(order), patience_s=PATIENCE_S)
    except (NotFound, Conflict) as gone:
        _log.info("pod to evict is already gone", **fields, answer=str(gone))
        return "gone"
    except KubeError as failed:
        _log.warning("pod not evicted", **fields, answer=str(failed))
        return "refused"
    _log.warning("pod evicted", **fields)
    return "evicted"
