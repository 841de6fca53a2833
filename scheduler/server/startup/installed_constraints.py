"""Find the constraints that are installed with the scheduler: entry points of the group ``mooring.constraints``.

The entry point's name is the kind's name, and its value a class or function that returns the constraint. One that
cannot be loaded is kept as a broken kind: a pod that requests it waits with that reason, instead of being bound without
it.
"""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

import structlog

from scheduler.constraints.isolation import Failed, isolate
from scheduler.constraints.kinds import AnyConstraint, Kind, Kinds, name_fault
from scheduler.placement.gpus_constraint import gpu_kind

GROUP = "mooring.constraints"
_METHODS = ("read_request", "read_inventory", "judge", "place")
_log = structlog.get_logger()


def installed() -> Kinds:
    """Return Mooring's own kind, GPUs, and all constraints of this Python installation."""
    return load(entry_points(group=GROUP), own=(gpu_kind(),))


def load(points: Iterable[EntryPoint], own: Iterable[Kind] = ()) -> Kinds:
    """Load these entry points in addition to the ``own`` kinds; of several with one name, the last."""
    kinds = list(own)
    for name, point in {point.name: point for point in points}.items():
        conflict = "is the name of a built-in kind" if name in {kind.name for kind in own} else ""
        if wrong := name_fault(name) or conflict:
            _log.error("constraint ignored", constraint=name, reason=f"{name!r} {wrong}")
            continue
        kinds.append(_load(point))
    return Kinds(kinds)


def _load(point: EntryPoint) -> Kind:
    name = point.name
    try:
        constraint, missing = isolate(lambda: _make(point), ())
    except Failed as failed:
        return _broken(name, str(failed))
    if missing:
        return _broken(name, f"it has no method {missing[0]!r}")
    _log.info("constraint loaded", constraint=name, value=point.value)
    return Kind(name, constraint)


def _make(point: EntryPoint) -> tuple[AnyConstraint, list[str]]:
    """Return the constraint, and the methods that it lacks."""
    constraint = point.load()()
    return constraint, [method for method in _METHODS if not callable(getattr(constraint, method, None))]


def _broken(name: str, reason: str) -> Kind:
    _log.error("constraint cannot be loaded", constraint=name, reason=reason)
    return Kind(name, None, f"could not be loaded: {reason}")
