"""`kubectl mooring pods`: which pods hold which VFs, and which wait for some. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cli.plugin.reports.objects import Node, Pod
from cli.plugin.reports.tables import Answer, Cell, Table, Tone, cells, without_columns
from mooring import names
from mooring.annotations.assignment import AssignedVf, Assignment
from mooring.annotations.rates import PodRates, VfRates, assigned_rates, reserved_rates, with_rates
from mooring.annotations.request import asks_for_vfs, read_request
from mooring.errors import AnnotationError
from scheduler.placement.rate_change import wanted_rates

_COLUMNS = ("NAMESPACE", "NAME", "STATE", "NODE", "PF", "VF", "PCI", "NETWORK", "MIN-MBPS", "MAX-MBPS")
_WIDE = ("LINK", "MAC", "VLAN", "NAME", "CONTAINERS", "DESIRED", "RATES", "WHY")
# Left out where the others have to fit a terminal.
_ONLY_WIDE = ("PCI",)


def concerns(pod: Pod) -> bool:
    """Return whether a pod requests VFs or holds some."""
    return names.ASSIGNMENT in pod.annotations or asks_for_vfs(pod.annotations)


@dataclass(frozen=True, slots=True)
class PodSummary:
    """A pod, its VFs with their allocated rates, its state in one word, and the reason of a bad state.

    ``desired`` are the rates of its request, None if they are allocated. ``changed`` are rates that were allocated
    after the assignment. ``rates`` is the state of the last change, empty without one. ``reserved`` are the Mb/s of
    each VF as long as the allocated rates are not in force. ``in_force`` is None if the node has it and was not read.
    """

    pod: Pod
    vfs: tuple[AssignedVf, ...]
    state: str
    why: str
    desired: tuple[VfRates, ...] | None = None
    changed: PodRates | None = None
    rates: str = ""
    reserved: tuple[int, ...] | None = None
    in_force: bool | None = True


def is_open(pod: Pod) -> bool:
    """Return whether the node has to show if the allocated rates of a pod are in force."""
    told = pod.condition("MooringRates")
    return names.RATES in pod.annotations and (told is None or told.reason != "InForce")


def summarize(pod: Pod, node: Node | None = None) -> PodSummary:
    """Return the state of a pod by its annotations and status, and by its node if that was read."""
    assignment, wrong = pod.held()
    state, why = _state(pod, wrong)
    if assignment is None:
        return PodSummary(pod, (), state, why)
    changed, told = pod.rates(assignment), pod.condition("MooringRates")
    given = with_rates(assignment, changed) if changed is not None else assignment
    rates = (told.reason or "") if told is not None else ""
    if told is not None and rates != "InForce":
        why = why or told.message or ""
    reserved, in_force = _reserved(assignment, changed, node) if is_open(pod) and changed is not None else (None, True)
    return PodSummary(pod, given.vfs, state, why, _desired(pod, given), changed, rates, reserved, in_force)


def _reserved(
    assignment: Assignment, changed: PodRates, node: Node | None
) -> tuple[tuple[int, ...] | None, bool | None]:
    """Return the Mb/s that each VF reserves beside the allocated ones, and whether the rates are in force."""
    if node is None:
        return changed.reserved, None
    generations = node.rates_in_force()
    if (generations or {}).get(assignment.uid) == changed.generation:
        return None, True
    return reserved_rates(assignment, changed, generations), False


def _desired(pod: Pod, given: Assignment) -> tuple[VfRates, ...] | None:
    """Return the rates of the request, None if they are allocated or the request is not for these VFs."""
    text = pod.annotations.get(names.REQUEST)
    try:
        request = read_request({names.REQUEST: text}) if text is not None else None
        wanted = wanted_rates(request, given) if request is not None else None
    except AnnotationError:
        return None
    return None if wanted == assigned_rates(given) else wanted


def _state(pod: Pod, wrong: str) -> tuple[str, str]:
    if wrong:
        return "InvalidAssignment", wrong
    if pod.metadata.deletion_timestamp is not None:
        return "Terminating", ""
    scheduled = pod.condition("PodScheduled")
    if not pod.spec.node_name and scheduled is not None and scheduled.status == "False":
        return scheduled.reason or "Pending", scheduled.message or ""
    return pod.status.phase or "Pending", ""


def report(pods: Iterable[Pod], nodes: Iterable[Node] = (), *, wide: bool, every: bool = False) -> Answer:
    """Return one row a VF, and one for each pod that requests VFs and has none.

    ``nodes`` are those that were read. With ``every`` a pod has a row even if it requests no VFs.
    """
    there: Mapping[str, Node] = {node.metadata.name: node for node in nodes}
    ordered = sorted((pod for pod in pods if every or concerns(pod)), key=lambda pod: pod.key)
    ours = [summarize(pod, there.get(pod.spec.node_name or "")) for pod in ordered]
    rows = [row for pod in ours for row in _rows(pod, wide=wide)]
    columns = (*_COLUMNS, *_WIDE) if wide else _COLUMNS
    document = {"kind": "MooringPods", "v": 1, "items": [as_item(pod) for pod in ours]}
    table = Table(columns, rows, empty="no pods with interfaces", identity=("NAMESPACE", "NAME"))
    return Answer(document, (table if wide else without_columns(table, _ONLY_WIDE),), identity=("namespace", "name"))


def _rows(one: PodSummary, *, wide: bool) -> Iterator[tuple[Cell, ...]]:
    tone: Tone = "good" if one.state == "Running" else "bad" if one.why else ""
    metadata = one.pod.metadata
    first = cells(metadata.namespace, metadata.name, Cell(one.state, tone), one.pod.spec.node_name)
    for index, vf in enumerate(one.vfs):
        more = (*_more(vf), one.desired and _text(one.desired[index]), _told(one), one.why) if wide else ()
        yield (*first, *cells(*_row(vf), *more))
    if not one.vfs:
        nothing = [None] * (len(_COLUMNS) - 4)
        yield (*first, *cells(*nothing, *((*[None] * (len(_WIDE) - 1), one.why) if wide else ())))


def _row(vf: AssignedVf) -> tuple[object, ...]:
    return vf.pf, vf.vf, vf.pci, vf.network, vf.min_tx_rate or None, vf.settings.max_tx_rate or None


def _more(vf: AssignedVf) -> tuple[object, ...]:
    name = "(no netdev)" if vf.netdev is False else vf.name
    return vf.link, vf.settings.mac, vf.settings.vlan, name, ",".join(vf.containers or ()) or "all"


def _told(one: PodSummary) -> str:
    """Return the state of the last change, and that of the allocated rates if they differ."""
    is_other = one.changed is not None and one.in_force and one.rates not in ("", "InForce")
    return f"{one.rates}/InForce" if is_other else one.rates


def _text(rates: VfRates) -> str:
    """Return rates as min/max, in Mb/s."""
    return f"{rates.min_tx_rate or 0}/{rates.max_tx_rate or 0}"


def vf_table(vfs: Iterable[AssignedVf]) -> Table:
    """Return one row a VF, without its pod."""
    return Table(_COLUMNS[4:], [cells(*_row(vf)) for vf in vfs])


def as_item(one: PodSummary) -> dict[str, object]:
    """Return a pod as JSON values; ``rates`` is there if its rates were edited while it runs."""
    generation = one.changed.generation if one.changed is not None else 0
    known = {} if one.in_force is None else {"in_force": one.in_force}
    edited = {"rates": {"state": one.rates, "generation": generation, **known}} if one.rates or generation else {}
    metadata = one.pod.metadata
    return edited | {
        "metadata": {"namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid},
        "namespace": one.pod.metadata.namespace,
        "name": one.pod.metadata.name,
        "uid": one.pod.metadata.uid,
        "state": one.state,
        "why": one.why,
        "node": one.pod.spec.node_name or "",
        "vfs": [_entry(vf) | _rates(one, index) for index, vf in enumerate(one.vfs)],
    }


def _rates(one: PodSummary, index: int) -> dict[str, object]:
    """Return the desired and the reserved rates of a VF, in Mb/s, where they differ from the allocated ones."""
    wanted = one.desired[index] if one.desired is not None else None
    found: dict[str, object] = {}
    if wanted is not None:
        found["desired"] = {"min_tx_rate": wanted.min_tx_rate, "max_tx_rate": wanted.max_tx_rate}
    if one.reserved is not None:
        found["reserved_mbps"] = one.reserved[index]
    return found


def _entry(vf: AssignedVf) -> dict[str, object]:
    """Return a VF as JSON values; settings that were not requested are absent."""
    return {
        **vf.settings.to_fields(),
        "pf": vf.pf,
        "vf": vf.vf,
        "pci": vf.pci,
        "link": vf.link,
        "network": vf.network,
        "name": vf.name,
        "containers": None if vf.containers is None else list(vf.containers),
        "netdev": vf.netdev,
    }
