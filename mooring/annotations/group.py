"""A pod's group: the annotation ``mooring.dev/group``, which is the same on every member.

    {"name":"train-1","min":8,"within":"topology.kubernetes.io/rack","prefer":["network.topology.nvidia.com/leaf"],"rails":"same","runs":"6h"}

Members of a group start together or not at all. ``name_from`` can replace ``name``: it is a label of the pod whose
value is the name, for templates from which a controller makes several groups. Without both, the group is the pods of
one controller. For a pod with a PodGroup, which has a name and a count, ``min`` can be absent. ``disruption`` says
whether preemption can evict members one by one.

``roles`` gives a minimum to each value of the label ``role_from``: ``{"head": 1, "worker": 3}``; then ``min`` can be
absent. ``slices`` divides the members by rank: each 8 consecutive ranks share a value of the label. With a list, slices
of one size are whole in those of the next larger one: ``[{"size": 32, "within": RACK}, {"size": 8, "within": KEY}]``.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

from mooring import names
from mooring.annotations.run_time import run_time_s
from mooring.errors import AnnotationError
from mooring.parsing import Value, parse

# More pods than one job has ranks.
MOST_MEMBERS = 4096
# Members that may fail at one time.
MOST_SPARES = 64
MOST_ROLES = 64
# Levels of a network: leaf, spine, core and a few more.
MOST_LEVELS = 8
# same: interface k of all members is on one network. index: interface k is on the k-th network of its node.
Rails = Literal["same", "index"]
# group: preemption evicts all members or none; members beyond min one by one. pod: each member one by one.
Disruption = Literal["group", "pod"]
# How many values the message about differing members contains.
_MOST_VALUES = 3
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
# A label's key. Source: apimachinery's IsQualifiedName.
_LABEL_KEY = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-\w.]{0,61}[A-Za-z0-9])?", re.ASCII
)


class Slice(NamedTuple):
    """Each ``size`` consecutive ranks are on nodes with one value of the label ``within``."""

    size: int
    within: str

    def __repr__(self) -> str:
        return f"{self.size} within {self.within!r}"


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """A pod's group annotation; absent fields are None or empty.

    ``min`` is the number of members that must start together. ``within`` is the node label whose value all members
    share, ``prefer`` lists preferred such labels from narrow to wide. ``name_from`` is the pod label whose value is the
    name. ``disruption`` is how preemption treats the members; the default is "group". ``runs`` is how many seconds each
    member runs at most. ``spares`` is for how many further members room is kept. ``slices`` are from wide to narrow.
    ``roles`` are the values of the pod label ``role_from``, each with the number of members that it needs.
    """

    name: str | None = None
    min: int | None = None
    within: str | None = None
    prefer: tuple[str, ...] = ()
    rails: Rails | None = None
    name_from: str | None = None
    disruption: Disruption | None = None
    runs: int | None = None
    spares: int | None = None
    slices: tuple[Slice, ...] = ()
    roles: tuple[tuple[str, int], ...] = ()
    role_from: str | None = None

    @property
    def least(self) -> int | None:
        """Return how many members start together: ``min``, or the sum of the roles; None if it has neither."""
        return self.min or sum(count for _, count in self.roles) or None


_FIELDS = frozenset(field.name for field in fields(GroupRequest))


def read_group(annotations: Mapping[str, str]) -> GroupRequest | None:
    """Read a pod's group from its annotations; None without the annotation. Raise AnnotationError."""
    text = annotations.get(names.GROUP)
    if text is None:
        return None
    return _read_short(text) if len(text) <= _SHORT else _read(text)


def difference(requests: Collection[GroupRequest]) -> str:
    """Return the first field in which members differ, with its values (``rails: none, 'same'``); empty if none does."""
    for field in fields(GroupRequest):
        values = sorted({_format(getattr(request, field.name)) for request in requests})
        if len(values) > 1:
            return f"{field.name}: {', '.join(values[:_MOST_VALUES])}{', …' if len(values) > _MOST_VALUES else ''}"
    return ""


def _format(value: object) -> str:
    return "none" if value in (None, ()) else repr(list(value) if isinstance(value, tuple) else value)


def _read(text: str) -> GroupRequest:
    document = parse(text, names.GROUP, AnnotationError).fields(_FIELDS)
    name = document.optional("name", _name)
    within = document.optional("within", _label_key)
    slices = document.optional("slices", _slices) or ()
    group_request = GroupRequest(
        name=name,
        min=document.optional("min", lambda value: value.integer(1, MOST_MEMBERS)),
        within=within,
        prefer=document.optional("prefer", _levels) or (),
        rails=document.optional("rails", _rails),
        name_from=document.optional("name_from", lambda value: _name_from(value, name)),
        disruption=document.optional("disruption", _disruption),
        runs=document.optional("runs", run_time_s),
        spares=document.optional("spares", lambda value: value.integer(0, MOST_SPARES)),
        slices=slices,
        roles=document.optional("roles", _roles) or (),
        role_from=document.optional("role_from", _pod_label_key),
    )
    if rule := slices_conflict(slices, group_request.least or 0, within or "", group_request.spares or 0):
        document.whole.at("slices", None).fail(rule)
    if rule := roles_conflict(group_request, group_request.min):
        document.whole.at("roles", None).fail(rule)
    return group_request


def roles_conflict(group_request: GroupRequest, min_members: int | None) -> str:
    """Return how the roles contradict a group's other fields; empty if they do not."""
    if bool(group_request.roles) != (group_request.role_from is not None):
        return "fields 'roles' and 'role_from' need each other"
    total = sum(count for _, count in group_request.roles)
    return f"min {min_members} is less than {total}, the sum of roles" if (min_members or total) < total else ""


def slices_conflict(slices: tuple[Slice, ...], min_members: int, within: str, spares: int) -> str:
    """Return how slices contradict a group's other fields; empty if they do not."""
    if slices and min_members % slices[0].size:
        return f"size {slices[0].size} does not divide min {min_members}"
    if any(entry.within == within for entry in slices):
        return f"label {within!r} is that of field 'within' too"
    return f"field 'spares' is {spares}, and slices have no spares" if slices and spares else ""


# Members have equal texts, so their values are cached. Long texts are rare, and would fill the memory.
_SHORT = 1024
_read_short = lru_cache(maxsize=4096)(_read)


def _name(value: Value) -> str:
    return value.match(_NAME, "a group's name (at most 253 of a-z 0-9 . -, alphanumeric at both ends)")


def _pod_label_key(value: Value) -> str:
    return value.match(_LABEL_KEY, "the key of a pod label such as 'leaderworkerset.sigs.k8s.io/group-key'")


def _roles(value: Value) -> tuple[tuple[str, int], ...]:
    entries = value.fields().items()
    if not 1 <= len(entries) <= MOST_ROLES:
        value.fail(f"has {len(entries)} roles, not 1 to {MOST_ROLES}")
    roles = tuple(sorted((role, entry.integer(1, MOST_MEMBERS)) for role, entry in entries))
    if sum(count for _, count in roles) > MOST_MEMBERS:
        value.fail(f"the sum exceeds {MOST_MEMBERS}")
    return roles


def _name_from(value: Value, name: str | None) -> str:
    key = _pod_label_key(value)
    if name is not None:
        value.fail(f"{key!r} cannot give a name because field 'name' is {name!r}")
    return key


def _label_key(value: Value) -> str:
    return value.match(_LABEL_KEY, "the key of a node label such as 'topology.kubernetes.io/rack'")


def _levels(value: Value) -> tuple[str, ...]:
    labels = tuple(_label_key(item) for item in value.items(MOST_LEVELS))
    if duplicate := next((label for index, label in enumerate(labels) if label in labels[:index]), ""):
        value.fail(f"names label {duplicate!r} twice")
    return labels


def _slices(value: Value) -> tuple[Slice, ...]:
    """Return the slices from wide to narrow."""
    entries = value.items(MOST_LEVELS) if isinstance(value.raw, list) else [value]
    if not entries:
        value.fail("is an empty list")
    slices = sorted(map(_slice, entries), reverse=True)
    for wide, narrow in pairwise(slices):
        if wide.size == narrow.size or wide.size % narrow.size:
            value.fail(f"size {wide.size} is not a multiple of the next smaller size, {narrow.size}")
    labels = [entry.within for entry in slices]
    if duplicate := next((label for label in labels if labels.count(label) > 1), ""):
        value.fail(f"names label {duplicate!r} twice")
    return tuple(slices)


def _slice(value: Value) -> Slice:
    entry = value.fields(Slice._fields)
    return Slice(entry.required("size").integer(2, MOST_MEMBERS), _label_key(entry.required("within")))


def _rails(value: Value) -> Rails:
    choices: tuple[Rails, Rails] = ("same", "index")
    return value.choice(*choices)


def _disruption(value: Value) -> Disruption:
    choices: tuple[Disruption, Disruption] = ("group", "pod")
    return value.choice(*choices)
