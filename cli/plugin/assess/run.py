"""Run `assess` against an API server: print the Jobs, or read the cluster and write its report."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from cli.plugin.assess import job
from cli.plugin.assess.collect import WORKLOADS, Archives, ShallowSource, in_folder, read_snapshot
from cli.plugin.assess.report import assess, report
from cli.plugin.assess.share import opened_shared, write_shared
from cli.plugin.assess.snapshot import NODES, name_of
from cli.plugin.bundle.memory import limited_memory
from cli.plugin.invocation import Invocation
from cli.plugin.page.html import page
from cli.plugin.reading import Reader, ReportProgress, Source
from cli.plugin.reports.tables import Answer, Cell, Table
from cli.plugin.reports.yaml_document import dump
from mooring.natural_order import natural


async def run(source: Source, invocation: Invocation, tell: ReportProgress) -> Answer:
    """Return the report, or the Jobs' manifests; raise a KubeError or RuntimeError."""
    reader = Reader(ShallowSource(source), tell)
    flags = invocation.arguments.assess
    if flags.image:
        return await _print_job(reader, invocation)
    return await _assess(reader, invocation, lambda nodes: _archives(flags.nodes_folder, nodes), tell)


async def run_shared(invocation: Invocation, tell: ReportProgress) -> Answer:
    """Return the report about what `--share` wrote; raise BundleError."""
    bundle = invocation.arguments.bundle
    with limited_memory(bundle), opened_shared(bundle) as (source, archives):
        reader = Reader(ShallowSource(source))
        then = replace(invocation, now=source.manifest.taken_at)
        return await _assess(reader, then, lambda _: archives, tell)


def _with_notes(answer: Answer, reader: Reader) -> Answer:
    """Return the answer with what could not be read."""
    notes = tuple(dict.fromkeys((*answer.notes, *reader.notes)))
    return replace(answer, document={**answer.document, "notes": list(notes)}, notes=notes)


def _archives(folder: str, nodes: Sequence[str]) -> Archives:
    return in_folder(folder, nodes) if folder else []


async def _assess(
    reader: Reader, invocation: Invocation, archives_for: Callable[[Sequence[str]], Archives], tell: ReportProgress
) -> Answer:
    flags = invocation.arguments.assess
    snapshot, archives = await read_snapshot(reader, archives_for, invocation.now, tell)
    if flags.share:
        write_shared(flags.share, snapshot, archives, invocation.version)
        text = f"{flags.share!r} written, without names, addresses and uids: look through it before you send it"
        answer = Answer({"kind": "MooringShared", "v": 1, "file": flags.share}, (Table(("",), [(Cell(text),)]),))
        return _with_notes(answer, reader)
    answer = _with_notes(report(assess(snapshot, WORKLOADS, flags.rack)), reader)
    if flags.html:
        Path(flags.html).write_text(page(answer.document), encoding="utf-8")
        text = f"{flags.html!r} written: {len(snapshot.captures)} of {len(snapshot.nodes)} nodes have a capture"
        return replace(answer, tables=(Table(("",), [(Cell(text),)]),))
    return answer


async def _print_job(reader: Reader, invocation: Invocation) -> Answer:
    nodes = sorted((name_of(node) for node in await reader.must(NODES, dict)), key=natural)
    document = job.manifests(nodes, invocation.namespace, invocation.arguments.assess.image)
    rows = [(Cell(line),) for line in dump(document).splitlines()]
    return Answer(document, (Table(("",), rows),))
