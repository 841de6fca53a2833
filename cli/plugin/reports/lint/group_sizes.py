"""Whether a group's pods are made at one time, as many as must start together, and belong together. Pure.

A group without a name is the pods of one controller, and one whose name comes from a label that the controller sets is
the pods of an object with one value of it. One with a name has members in any object of its namespace, of which those
in the files are known. Nothing is said of a group that has a member of a kind whose number of pods is not known here,
or a PodGroup.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from cli.plugin.reports.lint.made_pods import MadePods, Wait, made_pods
from cli.plugin.reports.lint.manifests import Place, PodPlace
from cli.plugin.reports.lint.set_labels import role_labels
from cli.plugin.reports.lint.template_pods import group_request, read_template
from mooring import names
from mooring.annotations.group import GroupRequest, difference
from mooring.parsing import shorten
from scheduler.kube.group import MOST_SHAPES
from scheduler.kube.pod_info import PodInfo, without_identity


class GroupFinding(NamedTuple):
    """What is wrong with a group: in which file, in which object, at which place, and why. A note is only advice."""

    file: str
    owner: str
    place: Place
    rule: str
    is_note: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """Pods of one template and the group that they name; a label of the template gives a name as a text does."""

    file: str
    pod_place: PodPlace
    asked: GroupRequest
    made: MadePods

    @property
    def object_key(self) -> tuple[object, ...]:
        return self.file, self.pod_place.whole.line, self.pod_place.whole.path

    @property
    def namespace(self) -> str:
        return str(self.pod_place.whole.at("metadata", "namespace").value or "")

    @property
    def annotation(self) -> Place:
        return self.pod_place.pod.at("metadata", "annotations", names.GROUP)

    @property
    def min(self) -> int:
        return self.asked.least or 0

    @property
    def role(self) -> str | None:
        """The value of the label with the pods' role; None if it is not known."""
        labels = self.pod_place.pod.at("metadata", "labels").value
        known = role_labels(self.pod_place) | (labels if isinstance(labels, dict) else {})
        role = known.get(self.asked.role_from) if self.asked.role_from is not None else None
        return role if isinstance(role, str) else None

    def says(self, rule: str, place: Place | None = None, *, is_note: bool = False) -> GroupFinding:
        return GroupFinding(self.file, self.pod_place.owner, place or self.annotation, rule, is_note)


def judge_groups(pods: Iterable[tuple[str, PodPlace]]) -> Iterator[GroupFinding]:
    """Yield what is wrong with the groups of all files, given each pod or template with its file."""
    by_place = {(file, pod_place.whole.line, pod_place.pod.path): (file, pod_place) for file, pod_place in pods}
    members = [member for file, pod_place in by_place.values() for member in _members(file, pod_place)]
    for several in _unnamed(members):
        yield from _judge(several, members)
    for several in (*_labelled(members), *_named(members)):
        yield from _compare(several)
        yield from _judge(several)
        yield from _mixed(several)
    for member in members:
        yield from _other_label(member)
        yield from _other_role(member)
        yield from _later(member)
    yield from _without_group(by_place.values())


def _unnamed(members: Iterable[Member]) -> Iterator[list[Member]]:
    """Yield groups without a name: the pods of one controller."""
    groups: dict[tuple[object, ...], list[Member]] = {}
    for member in members:
        if member.asked.name is member.asked.name_from is None:
            made = member.made
            one = member if made.owns_pods else replace(member, made=replace(made, controllers=1))
            groups.setdefault((*member.object_key, "" if made.owns_pods else made.controller), []).append(one)
    yield from groups.values()


def _labelled(members: Iterable[Member]) -> Iterator[list[Member]]:
    """Yield groups whose name is a label that the controller sets: the pods of an object with one value of it."""
    groups: dict[tuple[object, ...], list[Member]] = {}
    for member in members:
        key = member.asked.name_from
        if key is not None and (label := member.made.labels.get(key)) is not None:
            one = replace(member, made=member.made.of_label(key))
            groups.setdefault((*member.object_key, key, label.part), []).append(one)
    yield from groups.values()


def _named(members: Iterable[Member]) -> Iterator[list[Member]]:
    """Yield groups with a name: the pods of any objects of a namespace, of any if it is not said."""
    groups: dict[str, list[Member]] = {}
    for member in members:
        if member.asked.name is not None:
            groups.setdefault(member.asked.name, []).append(member)
    for several in groups.values():
        for namespace in dict.fromkeys(member.namespace for member in several):
            yield [
                member for member in several if namespace == member.namespace or not (namespace and member.namespace)
            ]


def _members(file: str, pod_place: PodPlace) -> Iterator[Member]:
    asked = _asked(pod_place.pod)
    if asked is None or (pod_place.owner.startswith("Pod/") and asked.name is None):
        return
    for made in made_pods(pod_place):
        yield Member(file, pod_place, asked, made)


def _asked(pod: Place) -> GroupRequest | None:
    """Return what a pod says about its group; None if it says nothing that can be read, or has a PodGroup."""
    asked = None if _has_pod_group(pod) else group_request(pod)
    if asked is None or asked.least is None:
        return None
    labels = pod.at("metadata", "labels").value
    name = labels.get(asked.name_from) if isinstance(labels, dict) and asked.name_from is not None else None
    return replace(asked, name=name, name_from=None) if isinstance(name, str) and name else asked


def _has_pod_group(pod: Place) -> bool:
    labels = pod.at("metadata", "labels").value
    has_label = isinstance(labels, dict) and names.POD_GROUP_LABEL in labels
    return has_label or bool(pod.at("spec", "schedulingGroup").value)


def _title(asked: GroupRequest) -> str:
    return f"group {asked.name!r}" if asked.name is not None else f"one value of label {asked.name_from!r}"


def _judge(members: Sequence[Member], others: Sequence[Member] = ()) -> Iterator[GroupFinding]:
    """Yield what is wrong with one group, once for each number that its members give."""
    yield from _shapes(members)
    yield from _roles(members)
    totals = [member.made.total for member in members]
    if None in totals or not (total := sum(filter(None, totals))):
        return
    waits = _waits(members)
    first = sum(0 if wait else member.made.started or 0 for member, wait in zip(members, waits, strict=True))
    for needed, member in {member.min: member for member in reversed(members)}.items():
        if needed > total:
            yield member.says(_exceeds(member, total) + _proposal(member, others, total))
        elif needed > first:
            yield from _held(members, waits, needed, first)
        elif member.asked.name_from is not None and needed < total:
            rule = (
                f"min: {needed} is less than {total}, the number of pods with {_title(member.asked)}: the others start "
                "one by one"
            )
            yield member.says(rule, is_note=True)


def _roles(members: Sequence[Member]) -> Iterator[GroupFinding]:
    """Yield a finding for each role of which too few pods are made, if all of the group's pods and roles are known."""
    first, counts = members[0], Counter[str]()
    for member in members:
        role = member.role
        if member.made.total is None or role is None:
            return
        counts[role] += member.made.total
    for role, needed in first.asked.roles:
        if needed > counts[role]:
            unless = ", unless other objects have members of it" if first.asked.name is not None else ""
            rule = f"roles.{role}: {needed} exceeds {counts[role]}, the number of its pods: it never starts{unless}"
            yield first.says(rule)


def _exceeds(member: Member, total: int) -> str:
    asked, needed = member.asked, member.min
    if asked.name_from is not None:
        return f"min: {needed} exceeds {total}, the number of pods with {_title(asked)}: it never starts"
    if asked.name is None:
        return (
            f"min: {needed} exceeds {total}, the number of pods that the controller makes at one time: it never starts"
        )
    return (
        f"min: {needed} exceeds {total}, the number of pods of {_title(asked)} that these files make at one time: "
        "it never starts, unless other objects have members of it"
    )


def _compare(members: Sequence[Member]) -> Iterator[GroupFinding]:
    """Yield a finding where members of one group ask for different things: the scheduler refuses all of them."""
    first = members[0]
    other = next((member for member in members if member.asked != first.asked), None)
    if other is not None:
        fields = difference([first.asked, other.asked])
        yield other.says(f"members of {_title(first.asked)} differ in {fields}: it never starts")


def _waits(members: Sequence[Member]) -> list[Wait | None]:
    """Return for each member why it waits for others in its object; None if it does not."""
    controllers: dict[tuple[object, ...], set[str]] = {}
    for member in members:
        if member.made.total:
            controllers.setdefault(member.object_key, set()).add(member.made.controller)
    return [
        next((wait for name, wait in member.made.after.items() if name in controllers.get(member.object_key, ())), None)
        for member in members
    ]


def _held(members: Sequence[Member], waits: Sequence[Wait | None], needed: int, first: int) -> Iterator[GroupFinding]:
    """Yield a finding for each field by which members wait for others of their group."""
    for one, earlier in zip(members, waits, strict=True):
        wait = earlier or one.made.wait
        made = one.made.started if earlier is None else 0
        if wait is None or made == one.made.total:
            continue
        rule = (
            f"{shorten(wait.place.value or wait.default)} holds pods back until {wait.until}: of {needed} that must "
            f"start together {first} are made, and the group never starts"
        )
        yield one.says(rule, wait.place)


def _shapes(members: Sequence[Member]) -> Iterator[GroupFinding]:
    """Yield a finding where the members ask for more different things than a group may."""
    if len(members) <= MOST_SHAPES:
        return
    shapes = set[bytes]()
    for member in members:
        try:
            pod_info = read_template(member.pod_place)
        except msgspec.ValidationError:
            return
        if isinstance(pod_info, PodInfo):
            shapes.add(without_identity(pod_info).shape)
    if (count := len(shapes)) > MOST_SHAPES:
        title = _title(members[0].asked)
        rule = f"the members of {title} request {count} different things, the most is {MOST_SHAPES}: it never starts"
        yield members[0].says(rule)


def _other_label(member: Member) -> Iterator[GroupFinding]:
    """Yield a finding where a group's name is another label of its controller than those that tell groups apart."""
    key, labels = member.asked.name_from, member.made.labels
    domain = (key or "").partition("/")[0]
    if key is None or key in labels or not any(known.startswith(f"{domain}/") for known in labels):
        return
    kind, use = member.pod_place.owner.partition("/")[0], member.made.replica_label or next(iter(labels))
    yield member.says(f"name_from: label {key!r} does not tell the groups of a {kind} apart: use {use!r}")


def _other_role(member: Member) -> Iterator[GroupFinding]:
    """Yield a finding where a role is another label of its controller than those that tell roles apart.

    An index, which differs in one template, may be a role too.
    """
    key, labels = member.asked.role_from or "", role_labels(member.pod_place)
    domain = key.partition("/")[0]
    if member.role is not None or key.endswith("-index") or not any(label.startswith(f"{domain}/") for label in labels):
        return
    kind = member.pod_place.owner.partition("/")[0]
    yield member.says(f"role_from: label {key!r} does not tell the roles of a {kind} apart: use {next(iter(labels))!r}")


def _replicas(members: Iterable[Member]) -> Iterable[list[Member]]:
    """Return the members of each object that are in the same replicas, if these have a label of their own."""
    by_replica: dict[tuple[object, ...], list[Member]] = {}
    for member in members:
        if (replica := member.made.replica) is not None:
            key = (*member.object_key, member.made.replica_label, replica.part)
            by_replica.setdefault(key, []).append(member)
    return by_replica.values()


def _size(members: Sequence[Member]) -> int | None:
    """Return how many pods of these templates one replica has."""
    pods = [member.made.replica.pods for member in members if member.made.replica is not None]
    return None if None in pods else sum(filter(None, pods))


def _mixed(members: Sequence[Member]) -> Iterator[GroupFinding]:
    """Yield a finding where a group with a name has the pods of several replicas; a note if it needs more than one."""
    total = [member.made.total for member in members]
    for several in _replicas(member for member in members if member.asked.name is not None):
        first, size = several[0], _size(several)
        values = first.made.replica.values if first.made.replica is not None else None
        if not size or values is None or values < 2 or None in total or first.min > sum(filter(None, total)):
            continue
        title, label = _title(first.asked), first.made.replica_label
        if first.min <= size:
            rule = (
                f"{title} has the pods of {values} replicas, and any {first.min} of them start together: name_from "
                f"{label!r} in the place of name makes a group of the {size} pods of each"
            )
            yield first.says(rule)
        elif first.made.independent:
            rule = (
                f"{title} has the pods of {values} replicas, and none starts before {first.min} fit: name_from "
                f"{label!r} in the place of name makes a group of the {size} pods of each"
            )
            yield first.says(rule, is_note=True)


def _proposal(member: Member, others: Sequence[Member], total: int) -> str:
    """Return the label by which a group without a name would have all pods of a replica; empty if there is none."""
    for several in _replicas(member for member in others if member.asked.name is member.asked.name_from is None):
        size = _size(several)
        if any(one.pod_place is member.pod_place for one in several) and size is not None and size > total:
            return f"; name_from {member.made.replica_label!r} makes a group of the {size} pods of each replica"
    return ""


def _without_group(pods: Iterable[tuple[str, PodPlace]]) -> Iterator[GroupFinding]:
    """Yield a note for each object of which the pods of a replica have interfaces, and no group."""
    members = [
        Member(file, pod_place, GroupRequest(), made)
        for file, pod_place in pods
        if _has_interfaces(pod_place.pod) and not _has_pod_group(pod_place.pod)
        for made in made_pods(pod_place)
    ]
    for several in _replicas(members):
        first, size = several[0], _size(several)
        if size is not None and size > 1:
            rule = (
                "its pods are in no group and start one by one: name_from "
                f"{first.made.replica_label!r} makes a group of the {size} pods of each replica"
            )
            yield first.says(rule, first.pod_place.pod.at("metadata", "annotations"), is_note=True)


def _has_interfaces(pod: Place) -> bool:
    annotations = pod.at("metadata", "annotations").value
    return isinstance(annotations, dict) and names.REQUEST in annotations and names.GROUP not in annotations


def _later(member: Member) -> Iterator[GroupFinding]:
    """Yield a note where some pods of a group are made only when others have ended."""
    if (place := member.made.later) is not None:
        parallel = member.made.pods
        rule = (
            f"{place.value} exceeds parallelism {parallel}: the pods after the first {parallel} are made when others "
            "have ended, and start one by one"
        )
        yield member.says(rule, place, is_note=True)
