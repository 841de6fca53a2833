"""Allocate changed rates to a running pod: one PATCH, repeated until the API server's answer is definite.

Uid and version are preconditions, so the pod is as it was at the decision. A conflict may be with our own write whose
answer was lost, so the pod is read back. Because versions never repeat, no copy of the write can still arrive after a
conflict. After any other rejection one can, and the pod is read back once that is over. The condition is written with
the annotation, through pods/status, which accepts both.
"""

import asyncio

import structlog

from mooring import names
from mooring.kube.client import STRATEGIC_PATCH, Client
from mooring.kube.failures import Conflict, KubeError, NotFound, Throttled, Unknown
from mooring.kube.write import Write
from scheduler.cycle.instructions import WriteRates, WriteRatesResult
from scheduler.kube.outcomes import another_pod
from scheduler.server.bind import ON_ITS_WAY_S, read_back
from scheduler.server.reporting.report_bodies import rates_patch

_log = structlog.get_logger()


async def write_rates(client: Client, order: WriteRates, now: str) -> WriteRatesResult:
    """Write rates and return the result, however long the API server takes to answer; ``now`` is RFC 3339."""
    result = await _write(client, order, now)
    fields = {"pod": order.pod.key, "uid": order.rates.uid, "node": order.rates.node}
    if result.kind == "written":
        _log.info("rates allocated", **fields, rates=order.annotations[names.RATES])
    else:
        _log.info("rates not allocated", **fields, outcome=result.kind, reason=result.reason)
    return result


async def _write(client: Client, order: WriteRates, now: str) -> WriteRatesResult:
    pod = order.pod.metadata
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
    write = Write(client, "PATCH", f"{path}/status", rates_patch(order, now), STRATEGIC_PATCH)
    try:
        await write.send()
    except (Unknown, Throttled):
        raise
    except NotFound as gone:
        return WriteRatesResult("gone", gone.status.message)
    except KubeError as failed:
        if not write.lost:
            return _refused(failed)
        if not isinstance(failed, Conflict):
            await asyncio.sleep(ON_ITS_WAY_S)
        return await _look(client, path, order, failed)
    return WriteRatesResult("written")


def _refused(error: KubeError) -> WriteRatesResult:
    return WriteRatesResult("changed" if isinstance(error, Conflict) else "refused", error.status.message)


async def _look(client: Client, path: str, order: WriteRates, error: KubeError) -> WriteRatesResult:
    """Return whether an earlier copy of the write, whose answer was lost, was carried out."""
    try:
        pod = await read_back(client, path)
    except NotFound as gone:
        return WriteRatesResult("gone", gone.status.message)
    if pod.metadata.uid != order.rates.uid:
        return WriteRatesResult("gone", another_pod(pod))
    is_ours = all(pod.annotations.get(key) == value for key, value in order.annotations.items())
    return WriteRatesResult("written") if is_ours else _refused(error)
