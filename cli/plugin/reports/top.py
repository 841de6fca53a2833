"""`kubectl mooring top`: where bandwidth is reserved: by network, node and PF, and the pods that reserve most. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cli.plugin.reports.objects import Pod
from cli.plugin.reports.tables import Answer, Cell, Table, cells
from cli.plugin.reports.use import NodeUse, PfUse

_FULL, _NEARLY = 95, 80


@dataclass(frozen=True, slots=True)
class _Sum:
    """One row's sums, by the names that identify it: VFs held and on offer, Mb/s reserved and on offer."""

    names: tuple[str, ...]
    used: int
    vfs: int
    reserved: int
    offered: int

    @property
    def percent(self) -> int | None:
        return round(100 * self.reserved / self.offered) if self.offered else None


def report(found: Sequence[NodeUse], pods: Iterable[Pod], most: int) -> Answer:
    """Return the largest ``most`` of each, and how many more there are; all networks."""
    known = [(node.name, use) for node in found for use in node.pfs if use.used is not None]
    networks = _largest([((use.pf.network,), node, use) for node, use in known])
    nodes = _largest([((node,), node, use) for node, use in known])
    pfs = _largest([((node, use.pf.name), node, use) for node, use in known])
    greedy = _greedy(pods, {uid: mbps for node in found for uid, mbps in node.reserved.items()})
    counts = {"nodes": len(nodes), "PFs": len(pfs), "pods": len(greedy)}
    sums = {
        "networks": (("NETWORK",), networks),
        "nodes": (("NODE",), nodes[:most]),
        "pfs": (("NODE", "PF"), pfs[:most]),
    }
    document: dict[str, object] = {"kind": "MooringTop", "v": 1}
    document |= {title: [_item(columns, use) for use in of] for title, (columns, of) in sums.items()}
    document["pods"] = [
        dict(zip(("pod", "node", "vfs", "reserved_mbps"), pod_use, strict=True)) for pod_use in greedy[:most]
    ]
    document["not_shown"] = {name.lower(): max(count - most, 0) for name, count in counts.items()}
    tables = [_table(title, columns, of) for title, (columns, of) in sums.items()]
    rows = [cells(*pod_use) for pod_use in greedy[:most]]
    tables.append(Table(("POD", "NODE", "VFS", "RESERVED-MBPS"), rows, "pods", "no pod holds a VF"))
    # Without room for any the tables would say that there are none.
    return Answer(document, (*(tables if most else tables[:1]), *_rest(counts, most)))


def _rest(counts: Mapping[str, int], most: int) -> Iterator[Table]:
    """Yield a last line that names how many of each are not shown, if any."""
    more = [f"{count - most} {name}" for name, count in counts.items() if count > most]
    if more:
        line = f"not shown: {', '.join(more)}; --most {max(counts.values())} shows all"
        yield Table(("",), [(Cell(line, "faint"),)])


def _largest(uses: Iterable[tuple[tuple[str, ...], str, PfUse]]) -> list[_Sum]:
    """Sum by key; what a cable offers counts once in a sum, whichever of its PFs are in it. A use has its node."""
    sums: dict[tuple[str, ...], _Sum] = {}
    counted: set[tuple[object, ...]] = set()
    for key, node, use in uses:
        one = sums.get(key, _Sum(key, 0, 0, 0, 0))
        reserved, used = use.reserved_mbps or 0, use.used or 0
        cable = (key, node, use.pf.port) if use.pf.port is not None else (key, node, use.pf.name, None)
        offered = 0 if cable in counted else use.port_mbps
        counted.add(cable)
        sums[key] = _Sum(
            key, one.used + used, one.vfs + len(use.pf.vfs), one.reserved + reserved, one.offered + offered
        )
    return sorted(sums.values(), key=lambda use: (-use.reserved, -use.used, use.names))


def _greedy(pods: Iterable[Pod], known: Mapping[str, int]) -> list[tuple[str, str, int, int]]:
    """Return the pods by what they reserve: on a node that is not there, what their assignments say."""
    found = []
    for pod in pods:
        assignment, _ = pod.held()
        if assignment is not None and assignment.vfs and not pod.is_over:
            reserved = known.get(pod.metadata.uid, sum(vf.min_tx_rate for vf in assignment.vfs))
            found.append((pod.key, assignment.node, len(assignment.vfs), reserved))
    return sorted(found, key=lambda pod_use: (-pod_use[3], -pod_use[2], pod_use[0]))


def _table(title: str, columns: tuple[str, ...], sums: Sequence[_Sum]) -> Table:
    rows = [cells(*use.names, use.used, use.vfs, use.reserved, use.offered, _percent(use)) for use in sums]
    return Table((*columns, "USED", "VFS", "RESERVED-MBPS", "OFFER-MBPS", "%"), rows, title, "no VFs offered")


def _percent(one: _Sum) -> Cell:
    if one.percent is None:
        return Cell("-")
    return Cell(str(one.percent), "bad" if one.percent >= _FULL else "warning" if one.percent >= _NEARLY else "")


def _item(columns: tuple[str, ...], one: _Sum) -> dict[str, object]:
    of: dict[str, object] = {name.lower(): value for name, value in zip(columns, one.names, strict=True)}
    numbers = {"used": one.used, "vfs": one.vfs, "reserved_mbps": one.reserved, "offer_mbps": one.offered}
    return of | numbers | {"percent": one.percent}
