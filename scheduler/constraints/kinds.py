"""The installed kinds of resource, each isolated: whatever a constraint does, the scheduler continues. Pure.

A `Kind` calls its constraint and checks the answer. A constraint that raises or returns an invalid answer gives a
`Fault`, whose text names the constraint; the caller ignores that pod or that node, and nothing else. A ValueError about
a pod's or a node's text is an answer like any other. Faults are kept for the log.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from mooring import names
from mooring.annotations.inventory import Pf
from mooring.annotations.request import PodRequest
from mooring.errors import AnnotationError, ContractError
from mooring.parsing import dump, parse, shorten
from scheduler.constraints.protocol import (
    VFS,
    Beside,
    Constraint,
    ContainerSide,
    NodeSide,
    PodSide,
    Proposal,
    Units,
    Unmet,
)

Inventory = tuple[tuple[str, Hashable], ...]
AnyConstraint = Constraint[Any, Mapping[str, Hashable], Units[Any]]
Answer = TypeVar("Answer")
# Part of annotation keys, so it must be valid in one.
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,30}[a-z0-9])?", re.ASCII)
_MOST_UNITS = 4096
# Limits on the texts that a constraint reads; the policies in the manifests have the same limits.
MOST_REQUEST_CHARACTERS, MOST_INVENTORY_CHARACTERS = 16_384, 131_072
_LONGEST_ID = 253
_LONGEST_TEXT = 200
# Results are kept for this many units together, about 100 bytes each; a request counts as this many units.
_MOST_JUDGEMENTS, _A_REQUEST = 1 << 17, 16


class Fault(Exception):  # noqa: N818 - an outcome that the callers turn into a reason
    """A fault of a constraint, as a text that names it."""


class ConstraintError(Exception):
    """A constraint's code has raised an exception that is not an answer; the message is plain text."""


def isolate(ask: Callable[[], Answer], answers: tuple[type[Exception], ...]) -> Answer:
    """Return the answer; raise one of ``answers``, or `ConstraintError` with the text of any other exception."""
    try:
        return ask()
    except answers:
        raise
    except BaseException as exception:  # noqa: BLE001 - CancelledError too concerns one pod or node
        raise ConstraintError(f"{type(exception).__name__}: {shorten(str(exception))}") from None


# Yields proposals for a request and the free units, given the VFs that the pod requests, the node's PFs, and the steps.
PlaceBesideVfs = Callable[[Any, Units[Any], PodRequest | None, tuple[Pf, ...], Any], Iterator[Proposal]]


@dataclass(slots=True, eq=False)
class Kind:
    """One kind of resource; ``defect`` is why its constraint is not called, empty if it is.

    A pod that needs some of the extended ``resource`` requests the kind without an annotation too. ``placing`` returns
    the part of a unit that `judge` and `proposals` need: units of many nodes are equal in it. ``naming`` returns
    additional fields of the assignment about the units of a pod. ``place_beside_vfs`` replaces the constraint's `place`
    for a built-in kind, whose code needs no isolation.
    """

    name: str
    constraint: AnyConstraint | None
    defect: str = ""
    resource: str | None = None
    placing: Callable[[Any], Hashable] | None = None
    naming: Callable[[Sequence[Any]], dict[str, object]] | None = None
    place_beside_vfs: PlaceBesideVfs | None = None
    _judgements: dict[tuple[Hashable, Hashable], int | str] = field(default_factory=dict, repr=False)
    _judgement_units: int = field(default=0, repr=False)
    # The last fault in each method, and those since `take_faults`.
    _fault_texts: dict[str, str] = field(default_factory=dict, repr=False)
    _new_faults: list[str] = field(default_factory=list, repr=False)

    def read_request(self, pod: PodSide) -> Hashable | None:
        """Return what a pod requests; raise ValueError with the constraint's text, or `Fault`."""

        def ask(constraint: AnyConstraint) -> Hashable | None:
            request: Hashable | None = constraint.read_request(pod)
            hash(request)
            return request

        return self._call("read_request", ask, ValueError)

    def read_inventory(self, node: NodeSide) -> Inventory:
        """Return a node's units by id; raise ValueError with the constraint's text, or `Fault`."""
        if len(node.text) > MOST_INVENTORY_CHARACTERS:
            raise ValueError(f"longer than {MOST_INVENTORY_CHARACTERS} characters")

        def ask(constraint: AnyConstraint) -> Inventory:
            units = dict(constraint.read_inventory(node))
            _refuse_ids(units)
            inventory = tuple(sorted(units.items(), key=lambda unit: unit[0]))
            hash(inventory)
            return inventory

        return self._call("read_inventory", ask, ValueError)

    def judge(self, request: Hashable, left: Units[Any]) -> int | str:
        """Return how well the free units suit a request, from 0 to 100, or why they do not fit: also for a fault."""
        judgement = self._judgements.get((request, left))
        if judgement is None:
            size = _A_REQUEST + len(left.free)
            if self._judgement_units + size > _MOST_JUDGEMENTS:
                self._judgements.clear()
                self._judgement_units = 0
            self._judgement_units += size
            judgement = self._judgements[request, left] = self._judge(request, left)
        return judgement

    def proposals(self, request: Hashable, left: Units[Any], beside: Beside) -> Iterator[Proposal]:
        """Yield the constraint's proposals, each checked against the free units; raise `Unmet` or `Fault`."""
        free = {unit for unit, _ in left.free}
        proposals = self._call("place", lambda constraint: iter(constraint.place(request, left, beside)), Unmet)

        def ask(_: AnyConstraint) -> Proposal | None:
            proposal = next(proposals, None)
            return None if proposal is None else _check_proposal(proposal, free)

        while (proposal := self._call("place", ask, Unmet)) is not None:
            yield proposal

    def take_faults(self) -> list[str]:
        """Return the faults since the last call; the same fault twice in a row is returned once."""
        faults, self._new_faults = self._new_faults, []
        return faults

    def _judge(self, request: Hashable, left: Units[Any]) -> int | str:
        def ask(constraint: AnyConstraint) -> int | str:
            score: object = constraint.judge(request, left)
            if type(score) is str and score:
                return words(score)
            if type(score) is not int or not 0 <= score <= 100:
                raise TypeError(f"{shorten(score)} is neither an integer from 0 to 100 nor a text")
            return score

        try:
            return self._call("judge", ask)
        except Fault as fault:
            return str(fault)

    def _call(self, step: str, ask: Callable[[AnyConstraint], Answer], *answers: type[Exception]) -> Answer:
        """Call the constraint; exceptions in ``answers`` pass, and any other exception becomes a `Fault`."""
        if self.defect or self.constraint is None:
            raise Fault(f"constraint {self.name!r} {self.defect}")
        try:
            return isolate(partial(ask, self.constraint), answers)
        except ConstraintError as error:
            text = f"constraint {self.name!r} failed in {step}: {error}"
        if self._fault_texts.get(step) != text:
            self._fault_texts[step] = text
            self._new_faults.append(text)
        raise Fault(text)


@dataclass(frozen=True, slots=True)
class Wish:
    """A pod's request for one kind, as the kind's constraint has read it."""

    kind: Kind
    request: Hashable


class Kinds:
    """All installed kinds, in the order of their names."""

    def __init__(self, kinds: Iterable[Kind] = ()) -> None:
        self._kinds = MappingProxyType({kind.name: kind for kind in sorted(kinds, key=lambda kind: kind.name)})

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds.values())

    def wishes(
        self,
        annotations: Mapping[str, str],
        interfaces: int,
        resources: Mapping[str, int],
        containers: Callable[[], tuple[ContainerSide, ...]] = tuple,
    ) -> tuple[Wish, ...]:
        """Return what a pod requests; raise AnnotationError, also for a kind that is not installed."""
        wishes = []
        for name, text in self._request_texts(annotations, resources):
            key, kind = names.REQUEST_OF + name, self._kinds.get(name)
            if kind is None:
                raise AnnotationError(key, "", f"no constraint {shorten(name)} is installed in this scheduler")
            if len(text) > MOST_REQUEST_CHARACTERS:
                raise AnnotationError(key, "", f"longer than {MOST_REQUEST_CHARACTERS} characters")
            try:
                request = kind.read_request(PodSide(text, interfaces, dict(resources), containers()))
            except AnnotationError as unread:
                raise AnnotationError(unread.key, unread.path, words(unread.rule)) from unread
            except (ValueError, Fault) as unread:
                raise AnnotationError(key, "", words(str(unread))) from unread
            if request is not None:
                wishes.append(Wish(kind, request))
        return tuple(wishes)

    def _request_texts(self, annotations: Mapping[str, str], resources: Mapping[str, int]) -> list[tuple[str, str]]:
        """Return the kinds that a pod requests by an annotation or, with an empty request, by a resource alone."""
        by_resource = [(kind.name, "{}") for kind in self if kind.resource and resources.get(kind.resource)]
        by_annotation = asked_kinds(annotations)
        return sorted({**dict(by_resource), **dict(by_annotation)}.items()) if by_resource else by_annotation

    def take_faults(self) -> list[tuple[str, str]]:
        """Return the faults since the last call, each with its kind."""
        return [(kind.name, text) for kind in self for text in kind.take_faults()]


NONE = Kinds()


def asked_kinds(annotations: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the kinds that a pod's annotations name, with the text of each request, by name."""
    keys = [key for key in annotations if key.startswith(names.REQUEST_OF)]
    return [(key.removeprefix(names.REQUEST_OF), annotations[key]) for key in sorted(keys)]


def words(text: str) -> str:
    """Return a constraint's text in a form for a condition or the log: short, and valid Unicode."""
    return text[:_LONGEST_TEXT].encode(errors="replace").decode()


def name_fault(name: str) -> str:
    """Return why a kind must not have this name; empty if it may."""
    if name == VFS:
        return "is reserved for VFs"
    return "" if _NAME.fullmatch(name) else "is not a name of at most 32 of a-z 0-9 -, alphanumeric at both ends"


def _refuse_ids(units: Mapping[str, object]) -> None:
    if len(units) > _MOST_UNITS:
        raise TypeError(f"{len(units)} units exceed the limit of {_MOST_UNITS}")
    for unit in units:
        if type(unit) is not str or not 0 < len(unit) <= _LONGEST_ID or words(unit) != unit[:_LONGEST_TEXT]:
            raise TypeError(f"{shorten(unit)} is not a unit ID of 1 to {_LONGEST_ID} characters")


def _check_proposal(proposal: Proposal, free: set[str]) -> Proposal:
    """Return a proposal with its details as JSON reads them; raise TypeError for an invalid one."""
    if type(proposal) is not Proposal or type(proposal.units) is not tuple:
        raise TypeError(f"{shorten(proposal)} is not a proposal of units")
    if len(set(proposal.units)) != len(proposal.units):
        raise TypeError("a unit is listed twice in one proposal")
    for unit in proposal.units:
        if unit not in free:
            raise TypeError(f"unit {shorten(unit)} is not free on the node")
    narrows = {kind: dict(names_by_index) for kind, names_by_index in dict(proposal.narrows).items()}
    for kind, names_by_index in narrows.items():
        if not all(type(index) is int and type(units) is frozenset for index, units in names_by_index.items()):
            raise TypeError(f"narrowing of {shorten(kind)} is not a mapping from indexes to frozensets of names")
    details = parse(dump(dict(proposal.details)), "details", ContractError).fields().raw
    if "units" in details:
        raise TypeError("details contain the field 'units'")
    return Proposal(proposal.units, details, narrows)
