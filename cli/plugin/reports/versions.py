"""`kubectl mooring version`: the versions of this program, and of what runs in the cluster. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from cli.plugin.reports.checks import scheduler_versions
from cli.plugin.reports.objects import Pod
from cli.plugin.reports.tables import Answer, Table, cells
from cli.plugin.reports.use import NodeUse


def report(own: str, server: str = "", pods: Sequence[Pod] | None = None, nodes: Iterable[NodeUse] = ()) -> Answer:
    """Return a line for each program; ``pods`` are the scheduler's, ``server`` is empty if no server was asked."""
    programs: dict[str, Counter[str]] = {}
    for node in nodes:
        for program, version in (node.inventory.programs if node.inventory else {}).items():
            programs.setdefault(program, Counter())[version] += 1
    schedulers = scheduler_versions(pods)
    document = {
        "kind": "MooringVersion",
        "v": 1,
        "client": own,
        "server": server,
        "scheduler": schedulers,
        "nodes": {program: dict(sorted(counts.items())) for program, counts in sorted(programs.items())},
    }
    lines = [f"Client Version: {own}", *([f"Server Version: {server}"] if server else [])]
    lines += [f"Scheduler Version: {version}" for version in schedulers]
    return Answer(document, (Table(("",), [cells(line) for line in (*lines, *_of_nodes(programs))]),))


def _of_nodes(programs: dict[str, Counter[str]]) -> Iterator[str]:
    for program, counts in sorted(programs.items()):
        for version, count in sorted(counts.items()):
            yield f"{program} Version: {version} ({count} {'node' if count == 1 else 'nodes'})"
