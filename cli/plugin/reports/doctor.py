"""`kubectl mooring doctor`: what is wrong with an installation, as far as the API shows it. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from cli.plugin.reports.groups import UNLISTED, FoundGroup
from cli.plugin.reports.objects import UNKNOWN, Guard, Pod, unknown_annotations
from cli.plugin.reports.tables import Answer, Cell, Table, Tone, cells
from cli.plugin.reports.use import NO_INVENTORY, NodeUse
from mooring import names
from mooring.annotations.inventory import CRI_SHIM, NODE_PROGRAMS
from mooring.kube.guard import POLICIES, PolicyBinding, exempts, judge
from mooring.parsing import shorten
from scheduler.kube.refused import Refused

SCHEDULER = "mooring-scheduler"
_NAME, _VERSION = "app.kubernetes.io/name", "app.kubernetes.io/version"
_TONES: Mapping[str, Tone] = {"error": "bad", "warning": "warning"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be: its subject, and what is wrong."""

    level: Literal["error", "warning"]
    subject: str
    found: str


@dataclass(frozen=True, slots=True)
class Patient:
    """What is checked; None is what could not be read, which is neither good nor bad.

    ``without_guard`` is an operator's word that the cluster goes without the policies.
    """

    nodes: Sequence[NodeUse]
    pods: Sequence[Pod] | None
    policies: Sequence[Guard] | None
    bindings: Sequence[Guard] | None
    version: str
    without_guard: bool = False
    groups: Sequence[FoundGroup] = ()


def report(patient: Patient) -> Answer:
    """Return the programs of every node and all findings; status 1 if any is an error."""
    found = sorted(_findings(patient), key=lambda one: (one.level, one.subject))
    is_well = not any(one.level == "error" for one in found)
    document = {
        "kind": "MooringDoctor",
        "v": 1,
        "ok": is_well,
        "version": patient.version,
        "scheduler": _scheduler_versions(patient.pods),
        "nodes": [_item(node) for node in patient.nodes],
        "findings": [asdict(one) for one in found],
    }
    findings = Table(
        ("LEVEL", "SUBJECT", "FOUND"),
        [cells(Cell(one.level, _TONES[one.level]), one.subject, one.found) for one in found],
        "findings",
        "nothing is wrong that the API shows",
    )
    return Answer(document, (_programs(patient), findings), status=0 if is_well else 1)


def _item(node: NodeUse) -> dict[str, object]:
    programs = dict(node.inventory.programs) if node.inventory else {}
    return {"node": node.name, "ready": node.is_ready, "fault": node.fault, "programs": programs}


def _programs(patient: Patient) -> Table:
    """Return how many nodes run which versions: equal nodes share a row."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for node in patient.nodes:
        programs = node.inventory.programs if node.inventory else {}
        versions = (programs.get(one, "") for one in NODE_PROGRAMS)
        alike.setdefault((node.fault or "ready", *versions), []).append(node.name)
    rows = [
        cells(len(those), Cell(state, "good" if state == "ready" else "bad"), *versions, _some(those))
        for (state, *versions), those in sorted(alike.items(), key=lambda one: -len(one[1]))
    ]
    return Table(("NODES", "STATE", *(one.upper() for one in NODE_PROGRAMS), "WHICH"), rows, "nodes", "no nodes")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _findings(patient: Patient) -> Iterator[Finding]:
    for node in patient.nodes:
        yield from _of_node(node)
    if bare := [node.name for node in patient.nodes if node.fault == NO_INVENTORY]:
        # Not every node has an SR-IOV NIC: this may be intended.
        yield Finding("warning", "nodes", f"{len(bare)} without an inventory: {_some(bare)}")
    yield from _skew(patient)
    yield from _scheduler(patient.pods)
    yield from _guard(patient)
    yield from _unsigned(patient.pods or ())
    for pod in patient.pods or ():
        yield from _of_pod(pod)
    for group in patient.groups:
        yield from _of_group(group)


def _of_node(node: NodeUse) -> Iterator[Finding]:
    subject = f"node/{node.name}"
    if node.fault and node.fault != NO_INVENTORY:
        yield Finding("error", subject, node.fault)
    if node.inventory is not None and node.inventory.programs:
        # A missing shim is the node's fault already.
        for program in NODE_PROGRAMS:
            if program not in node.inventory.programs and program != CRI_SHIM:
                yield Finding("warning", subject, f"{program} has not said its version: it may not run")
    for pci, pods in node.disputed.items():
        yield Finding("error", subject, f"VF {pci} is claimed by {' and '.join(pods)}")
    for use in node.pfs:
        if not use.pf.up:
            yield Finding("warning", subject, f"link of PF {use.pf.name} is down")
        if use.left_mbps is not None and use.left_mbps < 0:
            yield Finding("error", subject, f"PF {use.pf.name} has {-use.left_mbps} Mb/s more reserved than it offers")
        for entry in use.pf.out:
            yield Finding("warning", subject, f"PF {use.pf.name} VF {entry.vfs} out: {entry.why}")


def _skew(patient: Patient) -> Iterator[Finding]:
    versions: dict[str, Counter[str]] = {}
    for node in patient.nodes:
        for program, version in (node.inventory.programs if node.inventory else {}).items():
            versions.setdefault(program, Counter())[version] += 1
    for version in _scheduler_versions(patient.pods):
        versions.setdefault(SCHEDULER, Counter())[version] += 1
    for program, counted in sorted(versions.items()):
        if len(counted) > 1:
            listed = ", ".join(f"{version} ({count})" for version, count in sorted(counted.items()))
            yield Finding("warning", f"program/{program}", f"several versions run: {listed}")
    known = {version for counted in versions.values() for version in counted}
    if known and patient.version not in known:
        yield Finding(
            "warning", "program/kubectl-mooring", f"is of {patient.version}, the cluster of {_several(known)}"
        )
    elif len(known) > 1 and not any(len(counted) > 1 for counted in versions.values()):
        yield Finding("warning", "program", f"programs are of several versions: {_several(known)}")


def _several(known: Iterable[str]) -> str:
    return ", ".join(sorted(known))


def _schedulers(pods: Sequence[Pod] | None) -> list[Pod]:
    return [pod for pod in pods or () if (pod.metadata.labels or {}).get(_NAME) == SCHEDULER and not pod.is_over]


def _scheduler_versions(pods: Sequence[Pod] | None) -> list[str]:
    return sorted({(pod.metadata.labels or {}).get(_VERSION, "") for pod in _schedulers(pods)} - {""})


def _scheduler(pods: Sequence[Pod] | None) -> Iterator[Finding]:
    if pods is None:
        yield Finding("warning", "pods", "could not be listed: neither they nor the scheduler are judged")
        return
    ours = _schedulers(pods)
    ready = [pod for pod in ours if (one := pod.condition("Ready")) is not None and one.status == "True"]
    if not ours:
        yield Finding("warning", "scheduler", f"no pod has the label {_NAME}={SCHEDULER}: it may run elsewhere")
    elif not ready:
        yield Finding("error", "scheduler", f"none of {len(ours)} pods is ready")


def _guard(patient: Patient) -> Iterator[Finding]:
    policies, bindings = patient.policies, patient.bindings
    if policies is None or bindings is None:
        yield Finding("warning", "guard", "could not be listed: whether it guards is not known")
        return
    there = {policy.metadata.name: policy.spec.failure_policy or "Fail" for policy in policies}
    specs = [one.spec for one in bindings]
    bound = [
        PolicyBinding(one.policy_name, frozenset(one.validation_actions or ()), exempts(one.match_resources))
        for one in specs
    ]
    for policy in POLICIES:
        if (found := judge(policy, there.get(policy), bound)).state != "bound":
            yield Finding("warning" if patient.without_guard else "error", f"guard/{policy}", found.why)


def _unsigned(pods: Sequence[Pod]) -> Iterator[Finding]:
    """Yield the pods without a signature where others have one: a node with keys does not start them again."""
    given = [pod for pod in pods if names.ASSIGNMENT in pod.annotations and not pod.is_over]
    unsigned = [pod.key for pod in given if names.SIGNATURE not in pod.annotations]
    if unsigned and len(unsigned) < len(given):
        rule = f"{len(unsigned)} assignments have no signature, others have: {_some(unsigned)}"
        yield Finding("warning", "signatures", f"{rule}; nodes with assignment keys refuse such pods")


def _of_pod(pod: Pod) -> Iterator[Finding]:
    subject = f"pod/{pod.key}"
    _, wrong = pod.held()
    if wrong and not pod.is_over:
        yield Finding("error", subject, f"assignment is not believed: {wrong}")
    scheduled = pod.condition("PodScheduled")
    if scheduled is not None and scheduled.status == "False" and scheduled.reason == "InvalidRequest":
        yield Finding("warning", subject, f"refused: {scheduled.message or ''}")
    for key in () if pod.is_over else unknown_annotations(pod.annotations):
        yield Finding("warning", subject, f"counts for nothing: {shorten(key)}: {UNKNOWN}")


def _of_group(found: FoundGroup) -> Iterator[Finding]:
    """Yield what a person has to mend: not a group that waits for room, nor one that these rights do not show."""
    subject = f"group/{found.name}"
    if found.state == "Refused" and found.refusal != UNLISTED:
        yield Finding("warning", subject, f"refused: {found.refusal}")
    elif not isinstance(found.group, Refused) and found.state == "Partial":
        half = f"{found.members.counting} of at least {found.group.min} members are placed"
        yield Finding("warning", subject, f"{half}: {found.why}" if found.why else half)
