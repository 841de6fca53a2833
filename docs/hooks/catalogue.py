"""The page of all messages, made from `docs/messages.txt` when the site is built.

A line of that file is an entry: the texts of one or more messages, then what to do. Here each entry becomes a heading
of its own, with the parts of the source that print it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from mkdocs.structure.pages import Page

from docs.hooks import texts

SOURCE = texts.ROOT / "docs/messages.txt"
_SPAN = re.compile(r"``\s?(.+?)\s?``|`([^`]+)`")
_HEADING = re.compile(r"(#+) (.+)")
# A text such as `node` is in many modules: more would not help a reader.
_MOST_PLACES = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """One or more messages that mean the same, and what to do about them (empty if they say it themselves)."""

    texts: tuple[str, ...]
    remedy: str


def entries(source: str) -> list[Entry]:
    """Return the entries of the file."""
    return [_entry(line) for line in source.splitlines() if line.startswith("- ")]


def _entry(line: str) -> Entry:
    """Return an entry: its texts are the code spans that the line begins with."""
    line = line.removeprefix("- ")
    found, end = [], 0
    for span in _SPAN.finditer(line):
        if line[end : span.start()].strip() not in ("", ","):
            break
        found.append(span[1] or span[2])
        end = span.end()
    return Entry(tuple(found), line[end:].removeprefix(":").strip())


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Add the catalogue to its page (called by MkDocs)."""
    if page.file.src_uri != "messages.md":
        return markdown
    return f"{markdown}\n{render(SOURCE.read_text(encoding='utf-8'))}"


def render(source: str) -> str:
    """Return the file as Markdown: a heading with an anchor for each section and each entry."""
    places = _places()
    titles = [match[2] for line in source.splitlines() if (match := _HEADING.fullmatch(line))]
    # Other pages link to sections, so an entry gives way if it would have the same anchor.
    anchors = {_slug(title) for title in titles}
    lines: list[str] = []
    for line in source.splitlines():
        if match := _HEADING.fullmatch(line):
            lines += ["", f"{line} {{#{_slug(match[2])}}}", ""]
        elif line.startswith("- "):
            lines += _article(_entry(line), anchors, places)
        else:
            lines.append(line)
    return "\n".join(lines)


def _article(entry: Entry, anchors: set[str], places: dict[str, list[str]]) -> Iterator[str]:
    first, *others = entry.texts
    anchor = _free(_slug(first)[:60].strip("-"), anchors)
    anchors.add(anchor)
    yield from ("", f"#### {_code(first)} {{#{anchor}}}", "")
    if others:
        yield from (", ".join(map(_code, others)), "")
    if entry.remedy:
        yield from (entry.remedy, "")
    if paths := list(dict.fromkeys(path for text in entry.texts for path in places.get(texts.normal(text), ()))):
        yield from (_printers(paths), "{ data-search-exclude .printers }", "")


def _printers(paths: list[str]) -> str:
    """Name the programs that print an entry's texts, and the files where these stand."""
    programs = sorted({next((_PRINTERS[top] for top in _PRINTERS if path.startswith(top)), path) for path in paths})
    shown = [_code(path) for path in paths[:_MOST_PLACES]] + ["…"] * (len(paths) > _MOST_PLACES)
    return f"{', '.join(programs)}: {', '.join(shown)}"


# By the beginning of a file's path.
_PRINTERS = {
    "advertiser/": "advertiser",
    "cli/node/": "mooring-node",
    "cli/plugin/": "kubectl mooring",
    "cli/": "kubectl mooring, mooring-node",
    "cni/": "CNI plugin",
    "cri_shim/": "CRI shim",
    "manifests/": "admission policies",
    "mooring/": "all programs",
    "scheduler/": "scheduler",
}


def _places() -> dict[str, list[str]]:
    """Return the files in which each text stands."""
    places: dict[str, list[str]] = {}
    for text in [*texts.strings(), *texts.forwarded(), *texts.policies()]:
        path = text.place.split(":")[0]
        if path not in places.setdefault(text.pattern, []):
            places[text.pattern].append(path)
    return places


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _slug(text: str) -> str:
    """Return a text as an anchor, as Python-Markdown makes it of a title."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text.replace("…", " ")).strip().lower())


def _free(anchor: str, anchors: set[str]) -> str:
    """Return an anchor that is not used yet."""
    anchor = anchor or "message"
    numbered = (f"{anchor}-{number}" for number in range(2, len(anchors) + 3))
    return anchor if anchor not in anchors else next(one for one in numbered if one not in anchors)
