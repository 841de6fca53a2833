"""The report as one HTML page that loads nothing: every text of the cluster is text there, never markup. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from cli.plugin.reports.tables import Table, printable

_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid #ddd;vertical-align:top;overflow-wrap:anywhere}
.bad{color:#a40000}.faint{color:#666}code{font-size:.9em}details{margin:.4rem 0}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}th,td{border-color:#444}.bad{color:#ff8a80}
.faint{color:#999}}
"""
# Nothing is fetched and no script runs, whatever a text contains.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(tables: Sequence[Table], document: Mapping[str, Any]) -> str:
    """Return the page with all tables, and the evidence of each finding."""
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Mooring: assessment of a cluster</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"><style>{_STYLE}</style></head><body>'
        "<h1>Assessment of a cluster</h1>"
    )
    return "".join((head, *map(_table, tables), *_evidence(document), "</body></html>\n"))


def _text(text: object) -> str:
    return escape(printable(str(text)))


def _table(table: Table) -> str:
    title = f"<h2>{_text(table.title)}</h2>" if table.title else ""
    if not table.rows:
        return f"{title}<p>{_text(table.empty)}</p>"
    names = "".join(f"<th>{_text(name)}</th>" for name in table.columns)
    header = f"<tr>{names}</tr>" if any(table.columns) else ""
    rows = "".join(
        "".join(("<tr>", *(f'<td class="{cell.tone}">{_text(cell.text)}</td>' for cell in row), "</tr>"))
        for row in table.rows
    )
    return f"{title}<table>{header}{rows}</table>"


def _evidence(document: Mapping[str, Any]) -> Iterator[str]:
    findings = document.get("findings") or ()
    if findings:
        yield "<h2>Evidence</h2>"
    for one in findings:
        rows = "".join(
            f"<tr><td>{_text(each['subject'])}</td><td><code>{_text(each['path'])}</code></td>"
            f"<td><code>{_text(each['value'])}</code></td></tr>"
            for each in one["evidence"]
        )
        summary = f"{_text(one['subject'])}: {_text(one['text'])}"
        yield f"<details><summary>{summary}</summary><table>{rows}</table></details>"
