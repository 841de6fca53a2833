"""Run `assess` against an API server: print the Jobs, or read the cluster and write its report."""

from cli.plugin.assess import job
from cli.plugin.assess.collect import WORKLOADS, read_snapshot
from cli.plugin.assess.report import assess, report
from cli.plugin.assess.snapshot import NODES, name_of
from cli.plugin.invocation import Invocation
from cli.plugin.reading import Reader, ReportProgress
from cli.plugin.reports.tables import Answer, Cell, Table
from cli.plugin.reports.yaml_document import dump
from mooring.natural_order import natural


async def run(reader: Reader, invocation: Invocation, tell: ReportProgress) -> Answer:
    """Return the report, or the Jobs' manifests; raise a KubeError or RuntimeError."""
    flags = invocation.arguments.assess
    if flags.image:
        return await _print_job(reader, invocation)
    snapshot = await read_snapshot(reader, flags.nodes_folder, invocation.now, tell)
    return report(assess(snapshot, WORKLOADS, flags.rack))


async def _print_job(reader: Reader, invocation: Invocation) -> Answer:
    nodes = sorted((name_of(node) for node in await reader.must(NODES, dict)), key=natural)
    document = job.manifests(nodes, invocation.namespace, invocation.arguments.assess.image)
    rows = [(Cell(line),) for line in dump(document).splitlines()]
    return Answer(document, (Table(("",), rows),))
