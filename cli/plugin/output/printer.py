"""Print an answer, or the changes from one answer to the next, in the format of the command line."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from cli.plugin.arguments import OutputFlags
from cli.plugin.output.jsonpath import Template
from cli.plugin.reports.changes import ItemChanges, RowChanges
from cli.plugin.reports.tables import Answer, draw, printable
from cli.plugin.reports.yaml_document import dump

# The kinds of documents whose items have names that commands take, with kubectl's prefix of `-o name`.
_NAMED: Mapping[str, tuple[str, str]] = {
    "MooringNodes": ("node", "node"),
    "MooringPods": ("pod", "name"),
    "MooringGroups": ("group", "name"),
}


def show(answer: Answer, output: OutputFlags, *, coloured: bool, width: int) -> None:
    """Print an answer to stdout, its notes and errors to stderr; ``width`` is that of the terminal, 0 without one."""
    text = _text(answer, output, coloured=coloured, width=width)
    if text:
        print(text, end="" if output.format == "jsonpath" else "\n")
    print_notes(f"Warning: {note}" for note in answer.notes)
    print_notes(answer.errors)
    sys.stdout.flush()


def _text(answer: Answer, output: OutputFlags, *, coloured: bool, width: int) -> str:
    match output.format:
        case "html":
            from cli.plugin.page.html import page

            return page(answer.document)
        case "json":
            # With an indent json would be ten times as slow, and msgspec by itself would leave C1 controls unescaped.
            return str(msgspec.json.format(json.dumps(answer.document)))
        case "yaml":
            return dump(_values(answer.document)).rstrip("\n")
        case "jsonpath":
            return Template(output.template).render(_values(answer.document))
        case "name":
            return "\n".join(_names(answer))
        case _:
            return draw(answer.tables, coloured=coloured, headers=output.headers, width=width)


def _values(document: object) -> Any:
    """Return a document in the types of JSON."""
    return msgspec.to_builtins(document)


def _names(answer: Answer) -> list[str]:
    prefix, field = _NAMED[str(answer.document["kind"])]
    items = answer.document["items"]
    assert isinstance(items, list), "a document whose items have names has items"
    return list(dict.fromkeys(f"{prefix}/{item[field]}" for item in items))


def shower(output: OutputFlags, *, coloured: bool) -> Callable[[Answer], None]:
    """Return what prints the changes of an answer, and the notes that were not in the one before."""
    rows, items = RowChanges(coloured=coloured, headers=output.headers), ItemChanges()
    printed: list[str] = []

    def show_changes(answer: Answer) -> None:
        if output.format == "json":
            lines = [json.dumps(item) for item in items.objects(answer)]
        elif output.format == "yaml":
            lines = [f"---\n{dump(_values(item))}".rstrip("\n") for item in items.objects(answer)]
        else:
            lines = rows.lines(answer)
        for line in lines:
            print(line)
        print_notes(f"Warning: {note}" for note in answer.notes if note not in printed)
        printed[:] = answer.notes
        sys.stdout.flush()

    return show_changes


def print_notes(lines: Iterable[str]) -> None:
    """Print lines to stderr."""
    for line in lines:
        print(printable(line), file=sys.stderr)
