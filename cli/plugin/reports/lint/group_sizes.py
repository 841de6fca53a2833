"""Whether as many pods of a group are made at one time as must start together, and say the same of it. Pure.

How many pods an object makes is a rule of its controller. A group without a name is the pods of one controller; one
with a name has members in any object of its namespace, of which those in the files are known. Nothing is said of a
group that has a member of a kind whose number of pods is not known here, or a PodGroup.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cli.plugin.reports.lint.manifests import Place, PodPlace
from mooring import names
from mooring.annotations.group import GroupRequest, difference, read_group
from mooring.errors import AnnotationError
from mooring.parsing import shorten


class SizeFinding(NamedTuple):
    """A group that never starts: in which file, in which object, at which place, and why."""

    file: str
    owner: str
    place: Place
    rule: str


@dataclass(frozen=True, slots=True)
class _Made:
    """Pods of one template: ``pods`` of each of ``controllers`` controllers alike, None if that is not known.

    Of each, ``at_first`` are made before one of them is ready, as the field ``policy`` says; absent is ``default``.
    None is made before those of the controllers ``after`` in the same object are ready, each given with the field that
    says so.
    """

    pods: int | None
    controllers: int | None = 1
    at_first: int | None = None
    controller: str = ""
    after: Mapping[str, Place] = field(default_factory=dict)
    policy: Place | None = None
    default: str = ""

    @property
    def total(self) -> int | None:
        return None if self.pods is None or self.controllers is None else self.pods * self.controllers

    @property
    def started(self) -> int | None:
        """Return how many are made before one of them is ready, if none of another controller is waited for."""
        return self.total if self.at_first is None else self.at_first


@dataclass(frozen=True, slots=True)
class _Member:
    """Pods of one template and the group that they name."""

    file: str
    there: PodPlace
    asked: GroupRequest
    made: _Made

    @property
    def object_key(self) -> tuple[object, ...]:
        return self.file, self.there.whole.line, self.there.whole.path

    @property
    def namespace(self) -> str:
        return str(self.there.whole.at("metadata", "namespace").value or "")

    @property
    def annotation(self) -> Place:
        return self.there.pod.at("metadata", "annotations", names.GROUP)


def oversized_groups(pods: Iterable[tuple[str, PodPlace]]) -> Iterator[SizeFinding]:
    """Yield the groups of all files that never start, given each pod or template with its file."""
    by_place = {(file, there.whole.line, there.pod.path): (file, there) for file, there in pods}
    members = [member for file, there in by_place.values() for member in _members(file, there)]
    named: dict[str, list[_Member]] = {}
    unnamed: dict[tuple[object, ...], list[_Member]] = {}
    for member in members:
        if member.asked.name is None:
            unnamed.setdefault((*member.object_key, member.made.controller), []).append(member)
        else:
            named.setdefault(member.asked.name, []).append(member)
    for several in unnamed.values():
        yield from _judge([replace(member, made=replace(member.made, controllers=1)) for member in several])
    for several in named.values():
        for namespace in dict.fromkeys(member.namespace for member in several):
            together = [one for one in several if namespace == one.namespace or not (namespace and one.namespace)]
            yield from _compare(together)
            yield from _judge(together)


def _members(file: str, there: PodPlace) -> Iterator[_Member]:
    asked = _asked(there.pod)
    kind = there.owner.partition("/")[0]
    for made in _KINDS.get(kind, _unknown)(there) if asked is not None else ():
        if asked is not None and not (kind == "Pod" and asked.name is None):
            yield _Member(file, there, asked, made)


def _asked(pod: Place) -> GroupRequest | None:
    """Return what a pod says about its group; None if it says nothing that can be read, or has a PodGroup."""
    annotations, labels = pod.at("metadata", "annotations").value, pod.at("metadata", "labels").value
    has_pod_group = pod.at("spec", "schedulingGroup").value or (
        isinstance(labels, dict) and names.POD_GROUP_LABEL in labels
    )
    text = annotations.get(names.GROUP) if isinstance(annotations, dict) else None
    if has_pod_group or not isinstance(text, str):
        return None
    try:
        asked = read_group({names.GROUP: text})
    except AnnotationError:
        return None
    return asked if asked is not None and asked.min is not None and asked.name_from is None else None


def _judge(members: Sequence[_Member]) -> Iterator[SizeFinding]:
    """Yield what is wrong with one group, once for each number that its members give."""
    totals = [member.made.total for member in members]
    if None in totals or not (total := sum(filter(None, totals))):
        return
    waits = _waits(members)
    first = sum(0 if wait else member.made.started or 0 for member, wait in zip(members, waits, strict=True))
    for needed, member in {one.asked.min or 0: one for one in reversed(members)}.items():
        if needed > total:
            yield SizeFinding(member.file, member.there.owner, member.annotation, _exceeds(member.asked, needed, total))
        elif needed > first:
            yield from _held(members, waits, needed, first)


def _compare(members: Sequence[_Member]) -> Iterator[SizeFinding]:
    """Yield a finding where members of one group ask for different things: the scheduler refuses all of them."""
    first = members[0]
    other = next((one for one in members if one.asked != first.asked), None)
    if other is not None:
        rule = (
            f"members of group {first.asked.name!r} differ in {difference([first.asked, other.asked])}: it never starts"
        )
        yield SizeFinding(other.file, other.there.owner, other.annotation, rule)


def _waits(members: Sequence[_Member]) -> list[Place | None]:
    """Return for each member the field by which it waits for others in its object; None if it does not."""
    there: dict[tuple[object, ...], set[str]] = {}
    for one in members:
        if one.made.total:
            there.setdefault(one.object_key, set()).add(one.made.controller)
    return [
        next((place for name, place in one.made.after.items() if name in there.get(one.object_key, ())), None)
        for one in members
    ]


def _exceeds(asked: GroupRequest, needed: int, total: int) -> str:
    if asked.name is None:
        return (
            f"min: {needed} exceeds {total}, the number of pods that the controller makes at one time: it never starts"
        )
    return (
        f"min: {needed} exceeds {total}, the number of pods of group {asked.name!r} that these files make at one time: "
        "it never starts, unless other objects have members of it"
    )


def _held(members: Sequence[_Member], waits: Sequence[Place | None], needed: int, first: int) -> Iterator[SizeFinding]:
    """Yield a finding for each field by which members wait for others of their group."""
    for one, wait in zip(members, waits, strict=True):
        policy = one.made.policy if wait is None else wait
        made = one.made.started if wait is None else 0
        if policy is None or made == one.made.total:
            continue
        rule = (
            f"{shorten(policy.value or one.made.default)} holds pods back until others of their group are ready: of "
            f"{needed} that must start together {first} are made, and the group never starts"
        )
        yield SizeFinding(one.file, one.there.owner, policy, rule)


def _number(place: Place, default: int | None) -> int | None:
    """Return a number of pods or controllers; None if it is not a number, as in a template that is not filled in."""
    value = default if place.value is None else place.value
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _above(there: PodPlace, steps: int = 1) -> Place:
    """Return what contains the template, so many steps above it."""
    return there.whole.at(*there.pod.path[len(there.whole.path) : -steps])


def _unknown(_: PodPlace) -> Iterator[_Made]:
    yield _Made(None)


def _pod(_: PodPlace) -> Iterator[_Made]:
    yield _Made(1)


def _replicas(there: PodPlace) -> Iterator[_Made]:
    yield _Made(_number(_above(there).at("replicas"), 1))


def _stateful_set(there: PodPlace) -> Iterator[_Made]:
    pods, policy = _number(there.whole.at("spec", "replicas"), 1), there.whole.at("spec", "podManagementPolicy")
    at_first = None if policy.value == "Parallel" or not pods else 1
    yield _Made(pods, at_first=at_first, policy=policy, default="OrderedReady")


def _parallel(job: Place) -> int | None:
    """Return how many pods a Job has at one time."""
    parallelism = _number(job.at("parallelism"), 1)
    completions = _number(job.at("completions"), parallelism)
    return None if parallelism is None or completions is None else min(parallelism, completions)


def _job(there: PodPlace) -> Iterator[_Made]:
    yield _Made(_parallel(_above(there)))


def _job_set(there: PodPlace) -> Iterator[_Made]:
    """Read one of a JobSet's replicated jobs, which may wait for earlier ones.

    With ``InOrder`` its Jobs are made when all Jobs of those before it are ready, with ``dependsOn`` when all Jobs of
    the named ones are Ready (their pods are ready, or they have ended) or Complete (they have succeeded). Source:
    jobset, api/jobset/v1alpha2/jobset_types.go, ReplicatedJob.Replicas, DependsOn and StartupPolicy, and
    pkg/controllers/depends_on.go, dependencyReachedStatus.
    """
    replicated = _above(there, 3)
    replicas = _number(replicated.at("replicas"), 1)
    yield _Made(_parallel(_above(there)), replicas, None, replicated.path[-1], _earlier_jobs(there.whole, replicated))


def _earlier_jobs(job_set: Place, replicated: Place) -> Mapping[str, Place]:
    """Return the replicated jobs that one waits for, by index, each with the field that says so."""
    order = job_set.at("spec", "startupPolicy", "startupPolicyOrder")
    jobs = job_set.at("spec", "replicatedJobs")
    if not isinstance(jobs.value, list):
        return {}
    if order.value == "InOrder":
        return {str(index): order for index in range(int(replicated.path[-1]))}
    index_of = {
        one["name"]: str(index)
        for index, one in enumerate(jobs.value)
        if isinstance(one, dict) and isinstance(one.get("name"), str)
    }
    found: dict[str, Place] = {}
    for entry, name in _dependencies(replicated):
        waiting = [name]
        while waiting:
            index = index_of.get(waiting.pop())
            if index is not None and index not in found:
                found[index] = entry.at("status")
                # What that one waits for in turn.
                waiting += [earlier for _, earlier in _dependencies(jobs.at(index))]
    return found


def _dependencies(replicated: Place) -> Iterator[tuple[Place, str]]:
    """Yield each entry of ``dependsOn``, with the name of the replicated job that it is about."""
    entries = replicated.at("dependsOn")
    for index in range(len(entries.value) if isinstance(entries.value, list) else 0):
        entry = entries.at(str(index))
        if isinstance(name := entry.at("name").value, str):
            yield entry, name


def _mpi_job(there: PodPlace) -> Iterator[_Made]:
    """Read one of an MPIJob's templates; the launcher's pods are those of a Job.

    Source: mpi-operator, pkg/apis/kubeflow/v2beta1/default.go, and types.go, LauncherCreationPolicy.
    """
    replicas, policy = _above(there), there.whole.at("spec", "launcherCreationPolicy")
    if replicas.path[-1] == "Launcher":
        after = {"workers": policy} if policy.value == "WaitForWorkersReady" else {}
        yield _Made(_number(replicas.at("replicas"), 1), controller="launcher", after=after)
    else:
        yield _Made(_number(replicas.at("replicas"), 0), controller="workers")


def _training_job(there: PodPlace) -> Iterator[_Made]:
    """Read one of a training job's templates, whose number a controller may change if it is elastic.

    Source: training-operator, pkg/apis/kubeflow.org/v1/defaulting_utils.go, setDefaultReplicas.
    """
    is_elastic = there.whole.at("spec", "elasticPolicy").value is not None
    yield _Made(None if is_elastic else _number(_above(there).at("replicas"), 1))


def _leader_worker_set(there: PodPlace) -> Iterator[_Made]:
    """Read a template of a LeaderWorkerSet; that of the workers is the leaders' too, if they have none.

    Leaders are the pods of one StatefulSet, and the workers of each those of another one, both parallel. Source: lws,
    pkg/controllers/leaderworkerset_controller.go and pod_controller.go.
    """
    spec = there.whole.at("spec")
    replicas, policy = _number(spec.at("replicas"), 1), spec.at("startupPolicy")
    size = _number(spec.at("leaderWorkerTemplate", "size"), 1)
    is_leaders = there.pod.path[-1] == "leaderTemplate"
    if is_leaders or spec.at("leaderWorkerTemplate", "leaderTemplate").value is None:
        yield _Made(replicas, controller="leaders")
    if not is_leaders:
        after = {"leaders": policy} if policy.value == "LeaderReady" else {}
        yield _Made(size and size - 1, replicas, controller="workers", after=after)


_KINDS: Mapping[str, Callable[[PodPlace], Iterator[_Made]]] = {
    "Pod": _pod,
    **dict.fromkeys(("Deployment", "ReplicaSet", "ReplicationController"), _replicas),
    "StatefulSet": _stateful_set,
    **dict.fromkeys(("Job", "CronJob"), _job),
    "JobSet": _job_set,
    "MPIJob": _mpi_job,
    **dict.fromkeys(("JAXJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob"), _training_job),
    "LeaderWorkerSet": _leader_worker_set,
}
