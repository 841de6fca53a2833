"""The fields of the API's objects that the commands show; all others are ignored.

They are fewer than the scheduler decodes: thousands are listed while a user waits, and unusual objects are shown too.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec

from mooring import names
from mooring.annotations.assignment import Assignment, verified_assignment
from mooring.annotations.assignment_signature import read_signature
from mooring.annotations.drain import Drain, read_drain_with_reasons
from mooring.annotations.inventory import read_inventory
from mooring.annotations.rates import PodRates, read_rates_in_force, verified_rates
from mooring.errors import AnnotationError
from scheduler.kube.objects import Metadata, NodeOutline, PodOutline, Struct

# The annotations that users write into pods, those that the scheduler writes, and in KNOWN the advertiser's too.
REQUESTS = (names.REQUEST, names.PLACEMENT, names.GROUP, names.RUNS)
SCHEDULERS = (names.ASSIGNMENT, names.SIGNATURE, names.RATES, names.RATES_SIGNATURE, names.SPARES)
KNOWN = frozenset((*REQUESTS, *SCHEDULERS, "mooring.dev/network-status"))
UNKNOWN = f"unknown annotation; known are {', '.join(REQUESTS)} and {names.REQUEST_OF}KIND"


def unknown_annotations(keys: Iterable[str]) -> list[str]:
    """Return those of a pod's annotations that are Mooring's by their prefix, and that no program reads: misspelt."""
    ours = (key for key in keys if key.startswith("mooring.dev/"))
    return [key for key in ours if key not in KNOWN and not key.startswith(names.REQUEST_OF)]


T = TypeVar("T")


class Derivations:
    """Keeps what was derived from an object: a command that follows changes derives it again only if it can differ."""

    __slots__ = ()

    def has(self, make: Callable[..., object]) -> bool:
        """Return whether a function's value is kept."""
        return make.__qualname__ in self.__dict__

    def derive(self, make: Callable[..., T], *others: object) -> T:
        """Return what a function makes of this object and of these others, as before if they are equal."""
        kept: dict[str, Any] = self.__dict__
        entry = kept.get(make.__qualname__)
        if entry is None or entry[0] != others:
            entry = kept[make.__qualname__] = (others, make(self, *others))
        made: T = entry[1]
        return made


class Node(Derivations, NodeOutline, dict=True, gc=True):
    @property
    def is_ready(self) -> bool:
        return (ready := self.condition("Ready")) is not None and ready.status == "True"

    def drain(self) -> Drain:
        """Return what is drained, and why; nothing if the annotations cannot be read, as for the advertiser."""
        try:
            return read_drain_with_reasons(self.metadata.annotations or {})
        except AnnotationError:
            return {}

    def rates_in_force(self) -> Mapping[str, int] | None:
        """Return which generation of its rates each pod has, by uid; None if the node changes no rates."""
        annotations = self.metadata.annotations or {}
        try:
            in_force = read_rates_in_force(annotations[names.RATES_IN_FORCE]).generations
            return in_force if read_inventory(annotations[names.INVENTORY]).rates else None
        except (KeyError, AnnotationError):
            return None


class Pod(Derivations, PodOutline, dict=True, gc=True):
    def held(self) -> tuple[Assignment | None, str]:
        """Return the pod's assignment, and why it is not valid, empty if it is."""
        return self.derive(Pod._held)

    def _held(self) -> tuple[Assignment | None, str]:
        try:
            return verified_assignment(self.annotations, self.metadata.uid, self.spec.node_name or ""), ""
        except AnnotationError as unreadable:
            return None, str(unreadable)

    def rates(self, assignment: Assignment) -> PodRates | None:
        """Return the rates that were allocated after the assignment; None without any, or if they are not valid."""
        try:
            return verified_rates(self.annotations[names.RATES], assignment)
        except (KeyError, AnnotationError):
            return None

    def signed_by(self) -> str:
        """Return the id of the key that is said to have signed the assignment, empty without a signature.

        Only a node has the keys that prove it.
        """
        try:
            return f"key {read_signature(self.annotations[names.SIGNATURE]).key}"
        except KeyError:
            return ""
        except AnnotationError as unreadable:
            return str(unreadable)


class Reference(Struct):
    uid: str = ""


# A time without its zone could not be compared with the others.
Time = Annotated[datetime, msgspec.Meta(tz=True)]


class Event(Struct):
    """``last_timestamp`` is absent from events of the newer API, which have ``event_time``."""

    metadata: Metadata
    involved_object: Reference = msgspec.field(default_factory=Reference)
    reason: str | None = None
    message: str | None = None
    last_timestamp: Time | None = None
    event_time: Time | None = None


class LeaseSpec(Struct):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: Time | None = None


class Lease(Struct):
    """A scheduler's Lease: the holder decides as long as it renews."""

    metadata: Metadata
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class GuardSpec(Struct):
    policy_name: str = ""
    validation_actions: list[str] | None = None
    failure_policy: str | None = None
    match_resources: dict[str, object] | None = None


class Guard(Struct):
    """A ValidatingAdmissionPolicy, or its binding."""

    metadata: Metadata
    spec: GuardSpec = msgspec.field(default_factory=GuardSpec)
