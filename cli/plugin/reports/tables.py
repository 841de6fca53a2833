"""Tables as values, and their rendering: plain into a pipe, with colours on a terminal. Pure."""

import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

Tone = Literal["", "good", "bad", "warning", "faint"]
_CODES: Mapping[str, str] = {"good": "32", "bad": "31", "warning": "33", "faint": "2", "head": "1"}
_GAP = "   "
# Fewer characters are too few for a sentence.
_LEAST_ROOM = 24


@dataclass(frozen=True, slots=True)
class Cell:
    """A line of text, and its tone."""

    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below their columns' names; ``title`` is above them. Without rows, ``empty`` is shown instead.

    ``identity`` are the columns that name what a row is about: rows with equal ones are distinguished by their order.
    """

    columns: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    empty: str = ""
    identity: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a command: the document for programs, the tables for people, notes, errors, the exit status.

    ``identity`` are the fields that name one of the document's items. ``errors`` are whole lines for stderr.

    The repr has neither document nor tables: `asyncio.run` writes the repr of its result, however long it is.
    """

    document: Mapping[str, object] = field(repr=False)
    tables: tuple[Table, ...] = field(repr=False)
    notes: tuple[str, ...] = field(default=())
    status: int = 0
    identity: tuple[str, ...] = field(default=(), repr=False)
    errors: tuple[str, ...] = field(default=(), repr=False)


def without_columns(table: Table, names: Collection[str]) -> Table:
    """Return a table without some of its columns."""
    kept = [at for at, name in enumerate(table.columns) if name not in names]
    return replace(
        table,
        columns=tuple(table.columns[at] for at in kept),
        rows=[[row[at] for at in kept] for row in table.rows],
        identity=tuple(name for name in table.identity if name not in names),
    )


def cells(*values: object) -> tuple[Cell, ...]:
    """Return values as cells; an unknown value is ``?``, an empty one ``-``."""
    return tuple(value if isinstance(value, Cell) else Cell(_shown(value)) for value in values)


def unknown(value: int | None) -> Cell:
    return Cell("?", "warning") if value is None else Cell(str(value))


def _shown(value: object) -> str:
    return "-" if value is None or value == "" else str(value)


def draw(tables: Sequence[Table], *, coloured: bool, headers: bool = True, width: int = 0) -> str:
    """Return the tables as text; the last column is wrapped at ``width`` characters, 0 for any width."""
    drawn = (_lines(_wrapped(table, width), coloured=coloured, headers=headers) for table in tables)
    return "\n\n".join(map("\n".join, drawn))


def _wrapped(table: Table, width: int) -> Table:
    """Return a table with its last column wrapped to the width, if that leaves the column enough room."""
    if not width or not table.rows:
        return table
    *others, _ = layout_of(table).widths
    room = width - sum(others) - len(_GAP) * len(others)
    if room < _LEAST_ROOM:
        return table
    rows: list[Sequence[Cell]] = []
    for *first, last in table.rows:
        parts = textwrap.wrap(last.text, room, break_long_words=False, break_on_hyphens=False) or [last.text]
        rows.append((*first, Cell(parts[0], last.tone)))
        rows += [(*(Cell("") for _ in first), Cell(part, last.tone)) for part in parts[1:]]
    return replace(table, rows=rows)


def _lines(table: Table, *, coloured: bool, headers: bool) -> Iterator[str]:
    if table.title:
        yield _paint(table.title, "head", coloured)
    if not table.rows:
        yield table.empty
        return
    if not headers:
        table = replace(table, columns=("",) * len(table.columns))
    layout = layout_of(table)
    if any(table.columns):
        yield draw_head(table.columns, layout, coloured=coloured)
    for row in table.rows:
        yield draw_row(row, layout, coloured=coloured)


@dataclass(frozen=True, slots=True)
class Layout:
    """The width of each column in characters, and whether its texts are aligned to the right."""

    widths: tuple[int, ...]
    right: tuple[bool, ...]


def layout_of(table: Table) -> Layout:
    """Return the layout of a table with rows: as wide as the widest text, numbers to the right."""
    texts = [[printable(cell.text) for cell in row] for row in table.rows]
    return Layout(
        tuple(max(map(len, column)) for column in zip(table.columns, *texts, strict=True)),
        tuple(all(_is_number(text) for text in column) for column in zip(*texts, strict=True)),
    )


def draw_head(columns: Sequence[str], layout: Layout, *, coloured: bool) -> str:
    """Return the columns' names as a line."""
    return _line(columns, ["head"] * len(columns), layout.widths, layout.right, coloured)


def draw_row(row: Sequence[Cell], layout: Layout, *, coloured: bool) -> str:
    """Return a row as a line; a text wider than its column moves those after it."""
    texts = [printable(cell.text) for cell in row]
    return _line(texts, [cell.tone for cell in row], layout.widths, layout.right, coloured)


def _line(
    texts: Sequence[str], tones: Sequence[str], widths: Sequence[int], right: Sequence[bool], coloured: bool
) -> str:
    padded = [
        text.rjust(width) if is_right else text.ljust(width)
        for text, width, is_right in zip(texts, widths, right, strict=True)
    ]
    padded[-1] = padded[-1].rstrip()
    return _GAP.join(_paint(text, tone, coloured) for text, tone in zip(padded, tones, strict=True)).rstrip()


def _paint(text: str, tone: str, coloured: bool) -> str:
    return f"\x1b[{_CODES[tone]}m{text}\x1b[0m" if coloured and tone else text


def _is_number(text: str) -> bool:
    return text.lstrip("-").isdecimal() or text in ("-", "?", "")


def printable(text: str) -> str:
    """Return a text without control characters: any user can write annotations, and a terminal executes them."""
    return (
        text
        if text.isprintable()
        else "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
    )
