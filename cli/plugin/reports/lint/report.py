"""`kubectl mooring lint FILE`: what of a manifest would be refused, by line, field and rule. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field

import msgspec

from cli.plugin.reports.lint.group_sizes import judge_groups
from cli.plugin.reports.lint.manifests import ManifestError, Place, PodPlace, WithoutPods, pods, render
from cli.plugin.reports.lint.other_groups import other_groups
from cli.plugin.reports.lint.other_networks import Networks, read_networks
from cli.plugin.reports.lint.other_requests import advise, requests_elsewhere
from cli.plugin.reports.lint.template_pods import main_containers, read_template
from cli.plugin.reports.objects import REQUESTS, SCHEDULERS, UNKNOWN, unknown_annotations
from cli.plugin.reports.tables import Answer, Cell, Table
from mooring import names
from mooring.annotations.request import PodRequest, read_request
from mooring.errors import AnnotationError
from mooring.parsing import MAX_BYTES, shorten
from scheduler.kube.outcomes import Refused

# As in the admission policy (manifests/base/guard/interfaces.yaml).
_LONGEST = {names.REQUEST: 32_768, names.RIT_REQUEST: 32_768, names.PLACEMENT: 256}
_OF_PODS = (*REQUESTS, names.RIT_REQUEST)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that would be refused; ``line`` counts from 1."""

    file: str
    line: int
    subject: str
    field: str
    rule: str


def report(files: Iterable[tuple[str, str]], schedulers: tuple[str, ...]) -> Answer:
    """Check files, given as names and texts; status 1 if anything would be refused."""
    found: list[Finding] = []
    objects: list[tuple[str, PodPlace | WithoutPods]] = []
    order: dict[str, int] = {}
    for file, text in files:
        order.setdefault(file, len(order))
        try:
            objects.extend((file, manifest) for manifest in pods(text))
        except ManifestError as error:
            found.append(Finding(file, error.line, "", "", f"not YAML: {error.rule}"))
    networks = read_networks(
        (manifest.kind, manifest.whole) for _, manifest in objects if isinstance(manifest, WithoutPods)
    )
    checked = examine(objects, schedulers, networks)
    found += checked.findings
    found.sort(key=lambda finding: (order[finding.file], finding.line))
    notes = [*map(_line, checked.notes), *map(_note, checked.without)]
    return _answer(list(dict.fromkeys(found)), checked.pods, checked.others, tuple(dict.fromkeys(notes)))


@dataclass(slots=True)
class Checked:
    """What was found in objects: what would be refused, what is only noted, and kinds without a template.

    ``pods`` is how many pods and templates there were, ``others`` how many of them request devices of other programs.
    """

    findings: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    without: list[list[Finding]] = field(default_factory=list)
    pods: int = 0
    others: int = 0


def examine(
    objects: Iterable[tuple[str, PodPlace | WithoutPods]], schedulers: tuple[str, ...], networks: Networks
) -> Checked:
    """Check objects, each with the name of its file."""
    checked = Checked()
    without: dict[str, list[Finding]] = {}
    looked_at: list[tuple[str, PodPlace]] = []
    for file, manifest in objects:
        if isinstance(manifest, PodPlace):
            looked_at.append((file, manifest))
            checked.findings += _pod(file, manifest, schedulers)
            advice = advise(manifest, networks, schedulers)
            remarks = [Finding(file, place.line, manifest.owner, place.field, rule) for place, rule in advice.remarks]
            (checked.findings if advice.is_refused else checked.notes).extend(remarks)
            checked.others += advice.is_for_others
            continue
        if manifest.has_pods:
            without.setdefault(manifest.kind, []).append(_without(file, manifest))
        elsewhere = [
            Finding(file, at.line, manifest.owner, at.field, rule) for at, rule in requests_elsewhere(manifest.whole)
        ]
        checked.notes += elsewhere
        checked.others += bool(elsewhere)
    checked.pods, checked.without = len(looked_at), list(without.values())
    for one in judge_groups(looked_at):
        finding = Finding(one.file, one.place.line, one.owner, one.place.field, one.rule)
        (checked.notes if one.is_note else checked.findings).append(finding)
    return checked


def _answer(found: Sequence[Finding], looked_at: int, others: int, notes: tuple[str, ...]) -> Answer:
    rows = [(Cell(_line(finding), "bad"),) for finding in found]
    empty = f"no problems found (pods and templates checked: {looked_at})"
    if others:
        empty += f", but {others} request RDMA of other programs and no VFs of Mooring"
    document = {
        "kind": "MooringLint",
        "v": 1,
        "ok": not found,
        "pods": looked_at,
        "findings": [asdict(finding) for finding in found],
        "notes": list(notes),
    }
    return Answer(document, (Table(("",), rows, empty=empty),), notes, status=1 if found else 0)


def _without(file: str, manifest: WithoutPods) -> Finding:
    return Finding(file, manifest.whole.line, manifest.owner, "", "no pod template was found in it")


def _note(several: Sequence[Finding]) -> str:
    """Return one line about the objects of a kind."""
    more = f" ({len(several) - 1} more of its kind)" if len(several) > 1 else ""
    return f"{_line(several[0])}{more}"


def _line(one: Finding) -> str:
    return ": ".join(filter(None, (f"{one.file}:{one.line}", one.subject, one.field, one.rule)))


def _pod(file: str, pod_place: PodPlace, schedulers: tuple[str, ...]) -> list[Finding]:
    pod, found = pod_place.pod, list[tuple[Place, str]]()
    found += _misplaced(pod_place)
    annotations = pod.at("metadata", "annotations")
    if isinstance(annotations.value, dict):
        found += _annotations(annotations)
    request, wrong = _request(annotations)
    found += wrong
    if wrong or (request is not None and request.interfaces):
        found += _spec(pod, schedulers)
    if request is not None:
        found += _containers(pod, request, annotations)
    if not found:
        found += _as_the_scheduler(pod_place)
    if pod.at("spec", "schedulerName").value in schedulers:
        found += other_groups(pod)
    ordered = sorted(found, key=lambda finding: finding[0].line)
    return [Finding(file, place.line, pod_place.owner, place.field, rule) for place, rule in ordered]


def _misplaced(pod_place: PodPlace) -> Iterator[tuple[Place, str]]:
    """Yield the annotations of all that contains a template: of the object, and as in a CronJob of its Jobs."""
    start = len(pod_place.whole.path)
    for depth in range(len(pod_place.pattern)):
        own = pod_place.whole.at(*pod_place.pod.path[start : start + depth], "metadata", "annotations")
        metadata = pod_place.pod.renamed.get("metadata", "metadata")
        around = (*pod_place.pod.path[start : start + depth], *pod_place.pattern[depth:])
        where = render((*around, *([metadata] if metadata else []), "annotations"))
        for key in own.value if isinstance(own.value, dict) else ():
            if key in _OF_PODS or key.startswith(names.REQUEST_OF):
                yield own.at(key), f"is on the object, not on its pods: move it to {where}"
            elif unknown_annotations([key]):
                yield own.at(key), UNKNOWN


def _annotations(annotations: Place) -> Iterator[tuple[Place, str]]:
    size = 0
    for key, value in annotations.value.items():
        place = annotations.at(key)
        if not isinstance(value, str):
            yield place, f"{shorten(value)} is not a string: quote it"
            continue
        size += len(key.encode()) + len(value.encode())
        if len(value) > _LONGEST.get(key, len(value)):
            yield place, f"has {len(value)} characters, the most is {_LONGEST[key]}"
        if key in SCHEDULERS:
            yield place, "is written by the scheduler only"
        elif unknown_annotations([key]):
            yield place, UNKNOWN
    if size > MAX_BYTES:
        yield annotations, f"have {size} bytes, the most is {MAX_BYTES}"


def _request(annotations: Place) -> tuple[PodRequest | None, list[tuple[Place, str]]]:
    """Return the request; None if there is none, or it cannot be read: then with the reason."""
    texts = annotations.value if isinstance(annotations.value, dict) else {}
    try:
        return read_request({key: text for key, text in texts.items() if isinstance(text, str)}), []
    except AnnotationError as wrong:
        return None, [(annotations.at(wrong.key), f"{wrong.path}: {wrong.rule}" if wrong.path else wrong.rule)]


def _spec(pod: Place, schedulers: tuple[str, ...]) -> Iterator[tuple[Place, str]]:
    scheduler, node = pod.at("spec", "schedulerName"), pod.at("spec", "nodeName")
    if scheduler.value not in schedulers:
        said = "is missing" if scheduler.value is None else f"{shorten(scheduler.value)} provides no interfaces"
        yield scheduler, f"{said}: a pod with interfaces needs {' or '.join(map(repr, schedulers))}"
    if node.value:
        yield node, f"{shorten(node.value)} is preset, so no scheduler chooses VFs"
    if pod.at("spec", "hostNetwork").value:
        yield pod.at("spec", "hostNetwork"), "a pod in the host's network cannot be given interfaces"


def _containers(pod: Place, request: PodRequest, annotations: Place) -> Iterator[tuple[Place, str]]:
    lists = (pod.at("spec", kind).value for kind in ("initContainers", "containers"))
    containers = [container for several in lists if isinstance(several, list) for container in several]
    names_of = (one.get("name") for one in (*containers, *main_containers(pod)) if isinstance(one, dict))
    known = {name for name in names_of if isinstance(name, str)}
    key = names.REQUEST if names.REQUEST in annotations.value else names.RIT_REQUEST
    for index, interface in enumerate(request.interfaces):
        for name in sorted(set(interface.containers or ()) - known):
            yield annotations.at(key), f"[{index}].containers: {name!r} is not a container of this pod"


def _as_the_scheduler(pod_place: PodPlace) -> Iterator[tuple[Place, str]]:
    """Apply the scheduler's own reading of a pod, which refuses some more."""
    try:
        pod_info = read_template(pod_place)
    except msgspec.ValidationError as unreadable:
        yield pod_place.pod, f"not a pod: {unreadable}"
        return
    if isinstance(pod_info, Refused):
        yield _place_of(pod_place.pod, pod_info.reason)


def _place_of(pod: Place, reason: str) -> tuple[Place, str]:
    """Return the annotation that a reason begins with, and the rest; else the pod's spec."""
    annotations = pod.at("metadata", "annotations")
    for key in annotations.value if isinstance(annotations.value, dict) else ():
        if reason.startswith(start := f"annotation {key!r}"):
            return annotations.at(key), reason.removeprefix(start).lstrip(".: ")
    return pod.at("spec"), reason
