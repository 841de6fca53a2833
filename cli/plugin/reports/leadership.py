"""Whether a scheduler leads, by its Lease: without one no pod is bound. Pure: time is an argument."""

from collections.abc import Sequence
from dataclasses import dataclass

from cli.plugin.reports.objects import Lease
from mooring import names

LEASES = "/apis/coordination.k8s.io/v1/leases"
# What a Lease without its own duration is taken to last, in seconds: that of `scheduler.server.leader`.
_LEASE_S = 15
_STOCK = "default-scheduler"


@dataclass(frozen=True, slots=True)
class Leadership:
    """Whether a scheduler leads, in words too; ``age_s`` is how long ago its Lease was renewed."""

    leads: bool
    text: str
    holder: str = ""
    age_s: float | None = None


def lease_name(scheduler: str) -> str:
    """Return the name of the Lease of the scheduler for pods with this schedulerName.

    Pods of the stock kube-scheduler reach Mooring's by the extender, which leads under its own name.
    """
    return f"{names.SCHEDULER_NAME if scheduler == _STOCK else scheduler}-scheduler"


def judge(leases: Sequence[Lease], name: str, now: float) -> Leadership:
    """Judge the Lease of this name, in whichever namespace it was renewed last; ``now`` is UNIX time."""
    own_leases = [lease for lease in leases if lease.metadata.name == name]
    if not own_leases:
        return Leadership(False, f"no scheduler leads: no namespace has a Lease {name!r}")
    lease = max(own_leases, key=_renewed)
    key, holder = f"{lease.metadata.namespace}/{name}", lease.spec.holder_identity or ""
    if not holder or lease.spec.renew_time is None:
        return Leadership(False, f"no scheduler leads: its Lease {key!r} was released")
    # Of a clock that is ahead of ours, the Lease was renewed in the future.
    age = max(0.0, now - _renewed(lease))
    if age > (lease.spec.lease_duration_seconds or _LEASE_S):
        return Leadership(
            False, f"no scheduler leads: its Lease {key!r} was last renewed {_shown(age)} ago", holder, age
        )
    return Leadership(True, f"{holder} leads: it renewed Lease {key!r} {_shown(age)} ago", holder, age)


def _renewed(lease: Lease) -> float:
    return lease.spec.renew_time.timestamp() if lease.spec.renew_time else 0.0


def _shown(age_s: float) -> str:
    """Return an age in the largest unit that gives a number of 2 or more."""
    for unit, seconds in (("d", 86_400), ("h", 3600), ("min", 60)):
        if age_s >= 2 * seconds:
            return f"{age_s / seconds:.0f} {unit}"
    return f"{age_s:.0f} s"
