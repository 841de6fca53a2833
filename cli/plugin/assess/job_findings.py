"""Findings about jobs of which some pods run while others found no node. Pure."""

from collections.abc import Iterator, Sequence

from cli.plugin.assess.findings import Evidence, Finding
from cli.plugin.assess.requests import Job
from cli.plugin.assess.snapshot import Object, Snapshot, at, items, key_of, unix_time

# A pod that waits shorter than this may be placed in the next moment.
_LEAST_S = 60.0


def find(snapshot: Snapshot, jobs: Sequence[Job]) -> Iterator[Finding]:
    """Yield a finding for each job that was started by halves."""
    for job in jobs:
        bound, waiting = job.bound(), [pod for pod in job.unscheduled() if _waits(pod, snapshot.now)]
        if job.needs_all and bound and waiting:
            first = waiting[0]
            yield Finding(
                "job-half-started",
                f"job/{job.name}",
                f"{len(bound)} of {len(job.pods)} pods have a node, and {len(waiting)} wait for one",
                (
                    Evidence(f"pod/{key_of(bound[0])}", "spec.nodeName", str(at(bound[0], "spec", "nodeName"))),
                    Evidence(f"pod/{key_of(first)}", "status.conditions[PodScheduled]", _message(first)),
                ),
            )


def _condition(pod: Object) -> object:
    return next((item for item in items(pod, "status", "conditions") if at(item, "type") == "PodScheduled"), None)


def _waits(pod: Object, now: float) -> bool:
    condition = _condition(pod)
    if at(condition, "status") != "False" or at(condition, "reason") == "SchedulingGated":
        return False
    since = unix_time(at(condition, "lastTransitionTime"))
    return since is None or now - since >= _LEAST_S


def _message(pod: Object) -> str:
    return str(at(_condition(pod), "message") or at(_condition(pod), "reason") or "")
