"""The examples and commands of the pages, as they stand there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def section(page: str, heading: str) -> str:
    """Return the text below a heading of the second order."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def commands(page: str, heading: str) -> list[str]:
    """Return the commands of a section: lines indented by four blanks, with those below them that are indented more."""
    found: list[str] = []
    for line in _FENCED.sub("", section(page, heading)).splitlines():
        if re.match(r" {4}\S", line):
            found.append(line[4:])
        elif re.match(r" {5,}\S", line) and found:
            found[-1] += f"\n{line[4:]}"
    return found


def files(page: str, heading: str) -> list[str]:
    """Return the texts of a section's fenced blocks."""
    return [text for _, text in _FENCED.findall(section(page, heading))]


def way_out(page: str, message: str) -> str:
    """Return the first command that a page's entry for a message names."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    entry = next(line for line in text.splitlines() if line.startswith("- `") and f"`{message}`" in line)
    named: list[str] = re.findall(r"`([^`]+)`", entry[entry.index(f"`{message}`") + len(message) + 2 :])
    return next(one for one in named if re.match(r"(mooring-\w+|systemctl|kubectl) ", one))
