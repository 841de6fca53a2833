"""What is reported about pods and PodGroups: the bodies of conditions and Events, and which Events are written. Pure.

``now`` is RFC 3339 in bodies, and seconds of any clock in rate limits. Events are limited, and repetitions counted, as
in client-go's event correlator.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from mooring import names
from scheduler.cycle.decisions import Why
from scheduler.cycle.instructions import RatesReason, Report, ReportGroup, ReportRates, WriteRates
from scheduler.kube.objects import Condition, Pod
from scheduler.kube.workload_objects import CONDITION_TYPES
from scheduler.placement.memo import Memo
from scheduler.state.rates.pod_rates import CONDITION

# The API server rejects an event with a longer note.
_MAX_MESSAGE = 1024
# kube-scheduler reports the first two as normal events.
_GOOD_NEWS = ("Scheduled", "Preempted", "RatesAllocated", "RatesInForce")
# Equal to `mooring.parsing.dump`, in a sixth of the time.
_encode = msgspec.json.Encoder(order="sorted").encode
# client-go's event correlator drops an object's events beyond 25, except one in 5 min.
_EVENT_BURST = 25
_EVENTS_PER_S = 1 / 300
# Maximum number of objects and texts that are remembered; the least recently used are dropped.
_MEMORY = 4096


def is_of_pending(report: Report) -> bool:
    """Return whether the report is about a pending pod, so that it also belongs in the PodScheduled condition."""
    return report.reason in ("Unschedulable", "InvalidRequest")


def condition(kind: str, status: str, reason: str, message: str, since: str) -> dict[str, object]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}


def condition_patch(metadata: Mapping[str, object], condition: Mapping[str, object], **status: object) -> bytes:
    """Return a strategic merge patch of a status; uid and resourceVersion in ``metadata`` are preconditions."""
    return msgspec.json.encode({"metadata": metadata, "status": {"conditions": [condition]} | status})


def _since(last_condition: Condition | None, status: str, now: str) -> str:
    """Return since when a condition has had its status: another message is not a transition."""
    if last_condition is None or last_condition.status != status:
        return now
    return last_condition.last_transition_time or now


def condition_patches(report: Report | ReportGroup | ReportRates, now: str) -> Iterator[tuple[str, bytes]]:
    """Yield the path and the patch of a condition; of a PodGroup's for each version, the newest first."""
    match report:
        case Report(pod):
            yield f"{pod_path(pod.key)}/status", status_patch(report, now)
        case ReportRates(pod, reason, message):
            patch = condition_patch({"uid": pod.metadata.uid}, _rates_condition(pod, reason, message, now))
            yield f"{pod_path(pod.key)}/status", patch
        case ReportGroup():
            yield from _pod_group_patches(report, now)


def pod_path(key: str) -> str:
    """Return the path of the pod ``namespace/name``."""
    return "/api/v1/namespaces/{}/pods/{}".format(*key.split("/", 1))


def status_patch(report: Report, now: str) -> bytes:
    """Return the patch with the condition PodScheduled.

    The version in it is a precondition: a pod that was bound meanwhile must not be reported as unscheduled. So is the
    uid, in effect: the API server answers 409 to another version, and 422 to another uid with the same version.
    """
    since = _since(report.pod.condition("PodScheduled"), "False", now)
    metadata = {"uid": report.pod.metadata.uid, "resourceVersion": report.pod.metadata.resource_version}
    nomination = {} if report.nominated is None else {"nominatedNodeName": report.nominated or None}
    return condition_patch(
        metadata, condition("PodScheduled", "False", report.reason, report.message, since), **nomination
    )


def rates_patch(order: WriteRates, now: str) -> bytes:
    """Return the patch that allocates rates; uid and version are preconditions."""
    metadata = {
        "uid": order.rates.uid,
        "resourceVersion": order.pod.metadata.resource_version,
        "annotations": dict(order.annotations),
    }
    return condition_patch(metadata, _rates_condition(order.pod, "Allocated", order.message, now))


def _rates_condition(pod: Pod, reason: RatesReason, message: str, now: str) -> dict[str, object]:
    status, last_condition = "True" if reason == "InForce" else "False", pod.condition(CONDITION)
    # A deferred change is as old as its condition, by which a new leader orders them.
    is_same = last_condition is not None and last_condition.reason == reason
    return condition(CONDITION, status, reason, message, _since(last_condition, status, now) if is_same else now)


def _pod_group_patches(report: ReportGroup, now: str) -> Iterator[tuple[str, bytes]]:
    """Yield the patch for each version: one of them is served, and the condition's type differs between them.

    A condition that is not True has the resourceVersion as a precondition, so that it does not replace one that has
    become True.
    """
    about = report.pod_group.metadata
    metadata: dict[str, object] = {"uid": about.uid}
    if report.status != "True":
        metadata["resourceVersion"] = about.resource_version
    for version, name in CONDITION_TYPES.items():
        last_condition = next((entry for entry in report.pod_group.status.conditions or () if entry.type == name), None)
        since = _since(last_condition, report.status, now)
        group_condition = condition(name, report.status, report.reason, report.message, since)
        path = f"/apis/scheduling.k8s.io/{version}/namespaces/{about.namespace}/podgroups/{about.name}/status"
        yield path, condition_patch(metadata, group_condition | {"observedGeneration": about.generation})


class TokenBucket:
    """A token bucket: ``burst`` at once, then ``rate`` a second."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate, self._burst = rate, burst
        self._tokens, self._at = burst, now

    def take(self, now: float) -> float:
        """Take a token and return 0, or return the seconds until there is one."""
        self._tokens = min(self._burst, self._tokens + max(now - self._at, 0.0) * self._rate)
        self._at = max(now, self._at)
        if self._tokens < 1:
            return (1 - self._tokens) / self._rate
        self._tokens -= 1
        return 0.0


@dataclass(frozen=True, slots=True)
class EventRecord:
    """How an event is to be written: as the object ``name``, for the ``count``-th time since ``first``."""

    name: str
    count: int
    first: str


class EventCorrelator:
    """The events that were written: a repetition is counted in the existing one, and too many are dropped."""

    def __init__(self) -> None:
        self._records = Memo[tuple[str, str, str], EventRecord](_MEMORY)
        self._buckets = Memo[str, TokenBucket](_MEMORY)

    def correlate(self, uid: str, reason: str, message: str, record: EventRecord, now: float) -> EventRecord | None:
        """Return how to write an event about the object ``uid``, ``record`` if it is new; None if it has too many."""
        bucket = self._buckets.get(uid) or TokenBucket(_EVENTS_PER_S, _EVENT_BURST, now)
        if self._buckets.keep(uid, bucket).take(now) > 0:
            return None
        key = (uid, reason, message[:_MAX_MESSAGE])
        if (last_record := self._records.get(key)) is not None:
            record = EventRecord(last_record.name, last_record.count + 1, last_record.first)
        return self._records.keep(key, record)

    def forget(self, uid: str, reason: str, message: str) -> None:
        """Record that an event no longer exists: API servers delete them after an hour."""
        self._records.drop((uid, reason, message[:_MAX_MESSAGE]))


def event_reason(report: Report) -> str:
    return "FailedScheduling" if is_of_pending(report) else report.reason


def event(report: Report, component: str, record: EventRecord, now: str) -> bytes:
    related_fields = {} if report.related is None else {"action": "Preempting", "related": _reference(report.related)}
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": record.name,
                "namespace": report.pod.metadata.namespace,
                "annotations": _why_annotation(report.why),
            },
            "involvedObject": _reference(report.pod),
            "reason": event_reason(report),
            "message": report.message[:_MAX_MESSAGE],
            "type": "Normal" if report.reason in _GOOD_NEWS else "Warning",
            "source": {"component": component},
            "reportingComponent": component,
            "reportingInstance": component,
            "firstTimestamp": record.first,
            "lastTimestamp": now,
            "count": record.count,
        }
        | related_fields
    )


def repetition(report: Report, record: EventRecord, now: str) -> bytes:
    """Return the merge patch of an event that exists."""
    metadata = {"annotations": _why_annotation(report.why)}
    return msgspec.json.encode({"count": record.count, "lastTimestamp": now, "metadata": metadata})


def _why_annotation(why: Why) -> dict[str, str]:
    return {names.WHY: _encode(why).decode()}


def _reference(pod: Pod) -> dict[str, str]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod.metadata.name,
        "namespace": pod.metadata.namespace,
        "uid": pod.metadata.uid,
        "resourceVersion": pod.metadata.resource_version,
    }
