"""`kubectl mooring nodes`: the PFs of each node, and how many of their VFs are free, used and out. Pure."""

from collections.abc import Iterable, Sequence

from cli.plugin.reports.tables import Answer, Cell, Table, cells, unknown, without_columns
from cli.plugin.reports.use import NodeUse, PfUse, ShareUse
from mooring.annotations.drain import DRAINED
from mooring.annotations.inventory import TESTED_RATES
from mooring.annotations.pf_terms import Access

_COLUMNS = ("NODE", "STATE", "PF", "NETWORK", "LINK", "VFS", "FREE", "USED", "OUT", "LEFT-MBPS", "OFFER-MBPS")
_WIDE = ("PCI", "RDMA", "NUMA", "MIN-RATE", "MAX-RATE", "NAMESPACES", "WHY-OUT")
# Left out where the others have to fit a terminal.
_ONLY_WIDE = ("VFS", "OFFER-MBPS")
# The most namespaces of a PF that the table names.
_MOST_NAMED = 4


def report(found: Sequence[NodeUse], *, wide: bool) -> Answer:
    """Return one row a PF; a node that offers none has a row with the reason."""
    rows = [row for node in found for row in _rows(node, wide=wide)]
    columns = (*_COLUMNS, *_WIDE) if wide else _COLUMNS
    document = {"kind": "MooringNodes", "v": 1, "items": [as_item(node) for node in found]}
    table = Table(columns, rows, empty="no nodes", identity=("NODE", "PF"))
    return Answer(document, (table if wide else without_columns(table, _ONLY_WIDE),), identity=("node",))


def _rows(node: NodeUse, *, wide: bool) -> Iterable[tuple[Cell, ...]]:
    state = Cell(node.fault or "ready", "bad" if node.fault else "good")
    if not node.pfs:
        yield cells(node.name, state, *[None] * (len(_COLUMNS) - 2 + (len(_WIDE) if wide else 0)))
    for use in node.pfs:
        of_pf = Cell(f"{state.text},drained", "warning") if _is_drained(use) and not node.fault else state
        yield cells(node.name, of_pf, *_row(use), *(_more(use) if wide else ()))


def _is_drained(use: PfUse) -> bool:
    """Return whether all VFs of a PF are drained, but for those that are out for another reason."""
    outs = [entry.why.partition(":")[0] for entry in use.pf.out]
    return DRAINED in outs and not use.pf.usable


def _row(use: PfUse) -> tuple[object, ...]:
    pf = use.pf
    link = Cell(f"{'up' if pf.up else 'down'}{' IB' if pf.link == 'infiniband' else ''}", "" if pf.up else "bad")
    out = Cell(str(use.out), "warning" if use.out else "")
    left = Cell(str(use.left_mbps), "bad") if (use.left_mbps or 0) < 0 else unknown(use.left_mbps)
    return (pf.name, pf.network, link, len(pf.vfs), unknown(use.free), unknown(use.used), out, left, pf.offer_mbps)


def _more(use: PfUse) -> tuple[object, ...]:
    pf = use.pf
    why = "; ".join(f"{entry.vfs}: {entry.why}" for entry in pf.out)
    return pf.pci, pf.rdma, pf.numa, *map(pf.rate_state, TESTED_RATES), _namespaces(pf.access), why


def _namespaces(access: Access) -> str:
    """Return who may use a PF, and the limit of each namespace: `team-a,ml-* <=50%`; empty if all may use all."""
    names = list(access.namespaces[:_MOST_NAMED])
    hidden = len(access.namespaces) - len(names)
    share = "" if access.max_share is None else f"<={access.max_share}%"
    return " ".join(filter(None, (",".join(names + [f"+{hidden}"] * bool(hidden)), share)))


def as_item(node: NodeUse) -> dict[str, object]:
    """Return a node and its PFs as JSON values."""
    return {
        "metadata": {"name": node.name},
        "node": node.name,
        "ready": node.is_ready,
        "fault": node.fault,
        "pfs": [_pf(use) for use in node.pfs],
        "shares": [_share(share) for share in node.shares],
    }


def _share(share: ShareUse) -> dict[str, object]:
    held = None if share.held is None else dict(sorted(share.held.items()))
    return {"pfs": list(share.pfs), "max_share": share.max_share, "most_vfs": share.most_vfs, "held": held}


def _pf(use: PfUse) -> dict[str, object]:
    pf = use.pf
    return {
        "name": pf.name,
        "pci": pf.pci,
        "rdma": pf.rdma,
        "network": pf.network,
        "link": pf.link,
        "up": pf.up,
        "numa": pf.numa,
        "vfs": {"offered": len(pf.vfs), "free": use.free, "used": use.used, "out": use.out},
        "mbps": {"line": pf.mbps, "offered": pf.offer_mbps, "reserved": use.reserved_mbps, "left": use.left_mbps},
        "port": pf.port,
        "pcie": list(pf.pcie),
        "vf_netdevs": pf.vf_netdevs,
        "namespaces": list(pf.access.namespaces),
        "max_share": pf.access.max_share,
        "rates": {setting: pf.rate_state(setting) for setting in TESTED_RATES},
        "out": [{"vfs": str(entry.vfs), "why": entry.why} for entry in pf.out],
    }
