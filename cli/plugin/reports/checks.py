"""The checks of an installation, as far as the API shows it: `status` shows a line each, `doctor` all findings. Pure.

A check is a function that yields what is wrong, and one that says in a line what is well.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from cli.plugin.reports.found_groups import UNLISTED, FoundGroup
from cli.plugin.reports.leadership import Leadership
from cli.plugin.reports.objects import UNKNOWN, Guard, Pod, unknown_annotations
from cli.plugin.reports.pods import concerns
from cli.plugin.reports.use import NO_INVENTORY, NO_SHIM, NodeUse
from mooring import names
from mooring.annotations.inventory import CRI_SHIM, NODE_PROGRAMS
from mooring.kube.guard import POLICIES, PolicyBinding, exempts, judge
from mooring.parsing import shorten
from scheduler.kube.outcomes import Refused

SCHEDULER, ADVERTISER, INSTALLER = "mooring-scheduler", "mooring-advertiser", "mooring-node-installer"
NAME, VERSION = "app.kubernetes.io/name", "app.kubernetes.io/version"
_CHECK = "run `mooring-node check` there"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be: its subject, what is wrong, and what to do about it."""

    level: Literal["error", "warning"]
    subject: str
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Patient:
    """What is checked; None is what could not be read, which is neither good nor bad.

    ``without_guard`` is an operator's word that the cluster goes without the policies. ``leaderships`` are those of the
    schedulers that are asked about.
    """

    nodes: Sequence[NodeUse]
    pods: Sequence[Pod] | None
    policies: Sequence[Guard] | None
    bindings: Sequence[Guard] | None
    leaderships: Sequence[Leadership] | None
    version: str
    without_guard: bool = False
    groups: Sequence[FoundGroup] = ()
    server: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """A check: ``find`` yields what is wrong, ``good`` says what is well, ``page`` of the documentation has more."""

    name: str
    find: Callable[[Patient], Iterator[Finding]]
    good: Callable[[Patient], str]
    page: str


def some(texts: Sequence[str]) -> str:
    """Return the first three of some texts, and how many there are beside them."""
    return ", ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")


def pods_of(pods: Sequence[Pod] | None, program: str) -> list[Pod]:
    """Return the pods of one of Mooring's programs, by its label."""
    return [pod for pod in pods or () if (pod.metadata.labels or {}).get(NAME) == program and not pod.is_over]


def scheduler_versions(pods: Sequence[Pod] | None) -> list[str]:
    return sorted({(pod.metadata.labels or {}).get(VERSION, "") for pod in pods_of(pods, SCHEDULER)} - {""})


def _is_ready(pod: Pod) -> bool:
    return (ready := pod.condition("Ready")) is not None and ready.status == "True"


def _api_server(patient: Patient) -> Iterator[Finding]:
    """Yield nothing: these facts came from the API server, so it answers."""
    yield from ()


def _scheduler(patient: Patient) -> Iterator[Finding]:
    if patient.leaderships is None:
        yield Finding("warning", "scheduler", "its Lease could not be read: leadership is unknown")
    for leadership in patient.leaderships or ():
        if not leadership.leads:
            remedy = (
                "nothing is bound until one runs: `kubectl get pods -A -l app.kubernetes.io/name=mooring-scheduler`"
            )
            yield Finding("error", "scheduler", leadership.text, remedy)
    own_pods = pods_of(patient.pods, SCHEDULER)
    if own_pods and not any(map(_is_ready, own_pods)):
        first = own_pods[0].metadata
        remedy = f"look at `kubectl -n {first.namespace} describe pod {first.name}` and at its log"
        yield Finding("error", "scheduler", f"none of {len(own_pods)} pods is ready", remedy)


def _leaders(patient: Patient) -> str:
    return "; ".join(leadership.text for leadership in patient.leaderships or ())


def _nodes(patient: Patient) -> Iterator[Finding]:
    for node in patient.nodes:
        if node.fault not in ("", NO_INVENTORY, NO_SHIM):
            remedy = f"look at `kubectl describe node {node.name}`, and at the advertiser's log of this node"
            yield Finding("error", f"node/{node.name}", node.fault, remedy)
    yield from _advertisers(patient)
    bare = [node.name for node in patient.nodes if node.fault == NO_INVENTORY]
    if bare and len(bare) == len(patient.nodes):
        remedy = "install the advertiser, and its offer with the NICs of your nodes"
        yield Finding("error", "nodes", f"none of {len(bare)} publishes an inventory", remedy)
    elif bare:
        # Not every node has an SR-IOV NIC: this may be intended.
        where = {pod.spec.node_name for pod in pods_of(patient.pods, ADVERTISER)}
        without = [name for name in bare if name not in where]
        of_pods = f"; no pod of the advertiser is on {some(without)}" if without and where else ""
        yield Finding("warning", "nodes", f"{len(bare)} without an inventory: {some(bare)}{of_pods}")


def _advertisers(patient: Patient) -> Iterator[Finding]:
    for pod in pods_of(patient.pods, ADVERTISER):
        if not _is_ready(pod):
            about = f"{pod.metadata.name} -n {pod.metadata.namespace}"
            found = f"the advertiser on {pod.spec.node_name or 'no node'} is not ready"
            yield Finding("error", f"pod/{pod.key}", found, f"look at `kubectl logs {about} --all-containers`")


def _inventories(patient: Patient) -> str:
    count = sum(node.inventory is not None for node in patient.nodes)
    pfs = [use for node in patient.nodes for use in node.pfs]
    return f"{count} of {len(patient.nodes)} publish an inventory: {len(pfs)} PFs, {_offered(patient)} VFs"


def _offered(patient: Patient) -> int:
    return sum(len(use.pf.vfs) for node in patient.nodes for use in node.pfs)


def _node_part(patient: Patient) -> Iterator[Finding]:
    for node in patient.nodes:
        subject = f"node/{node.name}"
        if node.fault == NO_SHIM:
            yield Finding("error", subject, NO_SHIM, f"{_CHECK}, or `mooring-node install` if it never ran")
        for kind, message in node.impaired.items():
            yield Finding("error", subject, f"{kind}: {message}", _CHECK)
        if node.installation:
            remedy = f"`kubectl get pods -A -l {NAME}={INSTALLER} -o wide` shows its pod"
            yield Finding("warning", subject, node.installation, remedy)
        if node.inventory is not None and node.inventory.programs:
            # A missing shim is the node's fault already.
            for program in NODE_PROGRAMS:
                if program not in node.inventory.programs and program != CRI_SHIM:
                    yield Finding("warning", subject, f"{program} reports no version: it may not run", _CHECK)
    yield from _installers(patient)


def _installers(patient: Patient) -> Iterator[Finding]:
    # On these nodes the installer's own reason is reported.
    node_names = {node.name for node in patient.nodes if node.installation}
    for pod in pods_of(patient.pods, INSTALLER):
        if not _is_ready(pod) and pod.spec.node_name not in node_names:
            remedy = f"look at `kubectl describe pod {pod.metadata.name} -n {pod.metadata.namespace}` and at its log"
            found = f"the installer on {pod.spec.node_name or 'no node'} is not ready"
            yield Finding("warning", f"pod/{pod.key}", found, remedy)


def _running(patient: Patient) -> str:
    of_nodes = [node for node in patient.nodes if node.inventory and CRI_SHIM in node.inventory.programs]
    return f"CRI shim and CNI plugin run on {len(of_nodes)} nodes"


def _guard(patient: Patient) -> Iterator[Finding]:
    policies, bindings = patient.policies, patient.bindings
    if policies is None or bindings is None:
        yield Finding("warning", "guard", "could not be listed: not checked")
        return
    failure_policies = {policy.metadata.name: policy.spec.failure_policy or "Fail" for policy in policies}
    specs = [binding.spec for binding in bindings]
    policy_bindings = [
        PolicyBinding(spec.policy_name, frozenset(spec.validation_actions or ()), exempts(spec.match_resources))
        for spec in specs
    ]
    for policy in POLICIES:
        if (found := judge(policy, failure_policies.get(policy), policy_bindings)).state != "bound":
            level: Literal["error", "warning"] = "warning" if patient.without_guard else "error"
            yield Finding(level, f"guard/{policy}", found.why, "apply `manifests/base/guard`")


def _all_deny(_patient: Patient) -> str:
    return f"all {len(POLICIES)} exist and deny"


def _vfs(patient: Patient) -> Iterator[Finding]:
    for node in patient.nodes:
        subject = f"node/{node.name}"
        for pci, pods in node.disputed.items():
            yield Finding("error", subject, f"VF {pci} is claimed by {' and '.join(pods)}", "delete one of the pods")
        for use in node.pfs:
            if not use.pf.up:
                remedy = "check the cable and the switch"
                yield Finding("warning", subject, f"link of PF {use.pf.name} is down", remedy)
            if use.left_mbps is not None and use.left_mbps < 0:
                over = f"PF {use.pf.name} has {-use.left_mbps} Mb/s more reserved than it offers"
                yield Finding("error", subject, over, "delete pods until the rates fit")
            for entry in use.pf.out:
                yield Finding("warning", subject, f"PF {use.pf.name} VF {entry.vfs} out: {entry.why}")


def _held(patient: Patient) -> str:
    counts = [use.used for node in patient.nodes for use in node.pfs]
    held = "?" if None in counts else sum(count or 0 for count in counts)
    return f"{held} of {_offered(patient)} are held, each by one pod"


def _pods(patient: Patient) -> Iterator[Finding]:
    if patient.pods is None:
        yield Finding("warning", "pods", "could not be listed: pods and scheduler are not checked")
        return
    yield from _unsigned(patient.pods)
    for pod in patient.pods:
        yield from pod.derive(_of_pod)
    waits = [(pod.key, why) for pod in patient.pods if (why := pod.derive(_why_waiting)) and concerns(pod)]
    if waits:
        more = f" and {len(waits) - 1} more" if len(waits) > 1 else ""
        key, why = waits[0]
        name = key.rpartition("/")[2]
        remedy = f"`kubectl mooring explain {name} -n {key.partition('/')[0]}` names each node's reason"
        yield Finding("warning", "pods", f"{len(waits)} wait: {key}{more}: {why}", remedy)


def _why_waiting(pod: Pod) -> str:
    """Return why a pod has no node yet; empty if it has one, or if nobody has decided about it."""
    condition = pod.condition("PodScheduled")
    is_waiting = (
        condition is not None
        and condition.status == "False"
        and condition.reason != "InvalidRequest"
        and not pod.is_over
    )
    return (
        (condition.message or condition.reason or "no reason is given") if condition is not None and is_waiting else ""
    )


def _unsigned(pods: Sequence[Pod]) -> Iterator[Finding]:
    """Yield the pods without a signature where others have one: a node with keys does not start them again."""
    assignments = [pod for pod in pods if names.ASSIGNMENT in pod.annotations and not pod.is_over]
    unsigned = [pod.key for pod in assignments if names.SIGNATURE not in pod.annotations]
    if unsigned and len(unsigned) < len(assignments):
        rule = f"{len(unsigned)} of {len(assignments)} assignments have no signature: {some(unsigned)}"
        yield Finding("warning", "signatures", f"{rule}; nodes with assignment keys reject such pods")


def _of_pod(pod: Pod) -> tuple[Finding, ...]:
    return tuple(_faults_of_pod(pod))


def _faults_of_pod(pod: Pod) -> Iterator[Finding]:
    subject = f"pod/{pod.key}"
    _, wrong = pod.held()
    if wrong and not pod.is_over:
        yield Finding("error", subject, f"invalid assignment ignored: {wrong}", "delete the pod")
    condition = pod.condition("PodScheduled")
    if condition is not None and condition.status == "False" and condition.reason == "InvalidRequest":
        yield Finding("warning", subject, f"refused: {condition.message or ''}", "correct the pod's annotation")
    for key in () if pod.is_over else unknown_annotations(pod.annotations):
        yield Finding("warning", subject, f"ignored annotation: {shorten(key)}: {UNKNOWN}")


def _requesting(patient: Patient) -> str:
    own_pods = [pod for pod in patient.pods or () if concerns(pod)]
    return f"{len(own_pods)} request interfaces; none is rejected or unschedulable"


def _groups(patient: Patient) -> Iterator[Finding]:
    """Yield what a person has to mend: not a group that waits for room, nor one that these rights do not show."""
    for found in patient.groups:
        subject = f"group/{found.name}"
        if found.state == "Refused" and found.refusal != UNLISTED:
            yield Finding("warning", subject, f"refused: {found.refusal}")
        elif not isinstance(found.group, Refused) and found.state == "Partial":
            half = f"{found.members.current_count} of at least {found.group.min} members are placed"
            why = f"{half}: {found.why}" if found.why else half
            yield Finding("warning", subject, why, "see why the others wait: `kubectl mooring groups`")


def _whole(patient: Patient) -> str:
    return f"{len(patient.groups)}, none rejected or half placed"


def _versions(patient: Patient) -> Iterator[Finding]:
    versions = _versions_of(patient)
    for program, counted in sorted(versions.items()):
        if len(counted) > 1:
            listed = ", ".join(f"{version} ({count})" for version, count in sorted(counted.items()))
            yield Finding("warning", f"program/{program}", f"several versions are running: {listed}")
    every = {version for counted in versions.values() for version in counted}
    if every and patient.version not in every:
        yield Finding(
            "warning", "program/kubectl-mooring", f"has version {patient.version}, the cluster has {_listed(every)}"
        )
    elif len(every) > 1 and not any(len(counted) > 1 for counted in versions.values()):
        yield Finding("warning", "program", f"programs have different versions: {_listed(every)}")


def _versions_of(patient: Patient) -> dict[str, Counter[str]]:
    versions: dict[str, Counter[str]] = {}
    for node in patient.nodes:
        for program, version in (node.inventory.programs if node.inventory else {}).items():
            versions.setdefault(program, Counter())[version] += 1
    for version in scheduler_versions(patient.pods):
        versions.setdefault(SCHEDULER, Counter())[version] += 1
    return versions


def _listed(versions: Iterable[str]) -> str:
    return ", ".join(sorted(versions))


# In the order in which an installation comes to life: what is wrong first explains what is wrong later.
CHECKS: tuple[Check, ...] = (
    Check(
        "API server",
        _api_server,
        lambda patient: f"{patient.server} answers",
        "kubectl-mooring.md#kubeconfigs-and-proxies",
    ),
    Check("scheduler", _scheduler, _leaders, "messages.md#it-does-not-start-or-is-not-ready"),
    Check("nodes", _nodes, _inventories, "advertiser.md"),
    Check("node part", _node_part, _running, "install-node.md"),
    Check("admission policies", _guard, _all_deny, "guard.md"),
    Check("VFs", _vfs, _held, "messages.md#a-vf-that-may-not-be-used-now"),
    Check("pods", _pods, _requesting, "troubleshooting.md#a-pod-stays-pending"),
    Check("groups", _groups, _whole, "jobs.md"),
    Check("versions", _versions, lambda patient: f"all {patient.version}", "operations.md#upgrade"),
)
