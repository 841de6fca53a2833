"""Which nodes and rails are measured, the two pods, and what their logs say. Pure but for reading its own scripts.

A rail is a network of the inventories. Each pod has one VF of each rail, in natural order. So interface k and device k
of `NCCL_IB_HCA` belong to rail k.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import combinations
from typing import Any

import msgspec

from cli.plugin.reports.tables import Answer, Cell, Table, cells
from cli.plugin.reports.use import NodeUse
from mooring import names
from mooring.natural_order import natural

LABEL = "mooring-connectivity-test"
CONTAINER = "perftest"
# perftest's own default port, of the first rail (perftest_parameters.h: DEF_PORT).
_PORT = 18515
_MOST_RAILS = 64
_MARK = "mooring-connectivity"


class PlanError(RuntimeError):
    """No two nodes can be measured as requested."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Two nodes, their rails, and the pairs of rails to measure: indexes of the first node's and of the second's."""

    nodes: tuple[str, str]
    rails: tuple[str, ...]
    pairs: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PodOptions:
    """The pods as the user wants them; ``seconds`` is the time of one measurement."""

    image: str
    seconds: int
    scheduler: str


def make_plan(found: Sequence[NodeUse], nodes: Sequence[str], rails: Sequence[str], *, across: bool = False) -> Plan:
    """Return the two nodes that share most rails with a free VF; if nodes are named, of these.

    ``across`` pairs each rail with every other too. Raise PlanError with the reason.
    """
    free = {node.name: _free_rails(node) for node in found}
    for name in nodes:
        if name not in free:
            raise PlanError(f"node {name!r} does not exist")
    if len(nodes) == 1:
        raise PlanError(f"--nodes has one node, {nodes[0]!r}: a test needs two")
    among = tuple(nodes) or _two_of_each_kind(free)
    pairs = [(one, other) for one, other in combinations(among, 2) if _shared(free, one, other, rails)]
    if not pairs:
        wanted = f" of networks {', '.join(rails)}" if rails else ""
        raise PlanError(f"no two nodes{' of those named' if nodes else ''} have a free VF{wanted} on the same networks")
    first, second = max(pairs, key=lambda pair: len(_shared(free, pair[0], pair[1], rails)))
    shared = _shared(free, first, second, rails)[:_MOST_RAILS]
    every = range(len(shared))
    return Plan((first, second), shared, tuple((a, b) for a in every for b in every if across or a == b))


def _two_of_each_kind(free: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """Return the first two nodes of each set of rails: the others are like them."""
    of_kind: dict[frozenset[str], list[str]] = {}
    for name in sorted(free, key=natural):
        of_kind.setdefault(free[name], []).append(name)
    return tuple(name for several in of_kind.values() for name in several[:2])


def _free_rails(node: NodeUse) -> frozenset[str]:
    if node.fault:
        return frozenset()
    return frozenset(use.pf.network for use in node.pfs if use.pf.up and use.free)


def _shared(free: Mapping[str, frozenset[str]], one: str, other: str, rails: Sequence[str]) -> tuple[str, ...]:
    """Return the rails with a free VF on both nodes, in natural order; none if a named one is missing."""
    both = free[one] & free[other]
    if rails:
        return tuple(rails) if both >= set(rails) else ()
    return tuple(sorted(both, key=natural))


def server_pod(plan: Plan, options: PodOptions) -> dict[str, Any]:
    """Return the pod of the second node, which serves."""
    return _pod("server", plan.nodes[1], plan, options, {})


def client_pod(plan: Plan, options: PodOptions, address: str) -> dict[str, Any]:
    """Return the pod of the first node, which measures; ``address`` is the other pod's."""
    pairs = " ".join(f"{one}:{other}" for one, other in plan.pairs)
    return _pod("client", plan.nodes[0], plan, options, {"SERVER": address, "PAIRS": pairs})


def _pod(role: str, node: str, plan: Plan, options: PodOptions, environment: Mapping[str, str]) -> dict[str, Any]:
    script = files("cli.plugin.connectivity").joinpath("serve.sh" if role == "server" else "measure.sh")
    request = msgspec.json.encode([{"network": rail} for rail in plan.rails]).decode()
    values = {"PORT": str(_PORT), "SECONDS_EACH": str(options.seconds), **environment}
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [here]}]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"mooring-connectivity-{role}-",
            "labels": {"app.kubernetes.io/name": LABEL},
            "annotations": {names.REQUEST: request},
        },
        "spec": {
            "schedulerName": options.scheduler,
            "restartPolicy": "Never",
            # Nothing of an interrupted test stays for long.
            "activeDeadlineSeconds": 300 + longest_s(plan, options),
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "affinity": {"nodeAffinity": affinity},
            "containers": [
                {
                    "name": CONTAINER,
                    "image": options.image,
                    "command": ["sh", "-c", script.read_text(encoding="utf-8")],
                    "env": [{"name": name, "value": value} for name, value in values.items()],
                    # perftest registers memory, which is locked (ibv_reg_mr(3)).
                    "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
                }
            ],
        },
    }


def longest_s(plan: Plan, options: PodOptions) -> int:
    """Return how long `measure.sh` takes at most, in seconds: five attempts a pair, each with its pause."""
    return len(plan.pairs) * 5 * (options.seconds + 21)


@dataclass(frozen=True, slots=True)
class Said:
    """The log of a pod: whether it is ready or done, why it failed, and the results by pair."""

    is_ready: bool
    is_done: bool
    fault: str
    rates_gbps: Mapping[tuple[int, int], float]
    failures: Mapping[tuple[int, int], str]


def read_log(text: str) -> Said:
    """Read a log; skip lines that are not from the scripts."""
    marked = [parts for line in text.splitlines() if (parts := line.split("\t"))[0] == _MARK and len(parts) > 2]
    told = [(parts[1], parts[2:]) for parts in marked]
    kinds = {kind for kind, _ in told}
    return Said(
        "ready" in kinds,
        "done" in kinds,
        next((rest[-1] for kind, rest in told if kind == "fault"), ""),
        {_pair(rest[0]): float(rest[1]) for kind, rest in told if kind == "measured"},
        {_pair(rest[0]): rest[1] for kind, rest in told if kind == "failed"},
    )


def _pair(text: str) -> tuple[int, int]:
    one, _, other = text.partition(":")
    return int(one), int(other)


def report(plan: Plan, said: Said) -> Answer:
    """Return one row a pair; the exit status is 1 if one of them was not measured."""
    results = [(plan.rails[one], plan.rails[other], *_result(said, (one, other))) for one, other in plan.pairs]
    rows = [cells(one, other, *_shown(rate, fault)) for one, other, rate, fault in results]
    title = f"from a pod on {plan.nodes[0]} to one on {plan.nodes[1]}"
    items = [dict(zip(("from", "to", "gbps", "fault"), result, strict=True)) for result in results]
    document = {"kind": "MooringConnectivity", "v": 1, "nodes": list(plan.nodes), "items": items}
    return Answer(
        document,
        (Table(("FROM", "TO", "GBPS", "RESULT"), rows, title),),
        status=int(any(result[3] for result in results)),
    )


def _result(said: Said, pair: tuple[int, int]) -> tuple[float | None, str]:
    if pair in said.rates_gbps:
        return said.rates_gbps[pair], ""
    return None, said.failures.get(pair) or "not measured"


def _shown(rate: float | None, fault: str) -> Iterator[object]:
    yield "-" if rate is None else f"{rate:.2f}"
    yield Cell(fault, "bad") if fault else Cell("measured", "good")
