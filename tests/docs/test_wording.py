"""Pages use the field's terms and plain technical English: phrases that were replaced do not come back.

Only prose is read. Code blocks and code spans are left out: they hold commands, outputs and the texts of messages.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PAGES = sorted([*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md"), ROOT / "manifests/README.md"])


@dataclass(frozen=True, slots=True)
class Replaced:
    """A phrase as a pattern, what to write in its place, and a line in which the pattern has to find it."""

    pattern: str
    instead: str
    example: str

    def __str__(self) -> str:
        return self.example


REPLACED = (
    Replaced(r"\bwhom\b", "the program or the reader as the subject", "## Whom it believes"),
    Replaced(r"\banew\b", "again; recreate, restart, recompute", "The file is read anew."),
    Replaced(r"\bnobody of ours\b", "no program of Mooring, no pod of ours", "That nobody of ours does."),
    Replaced(r"\btakes? it that\b", "assume, record", "Take it that the pod is gone."),
    Replaced(r"\bcom(?:e|es|ing) true\b", "become true; wait until", "The wish comes true."),
    Replaced(r"\blet(?:s|ting)? go of\b", "release", "It lets go of the lock."),
    # Right are "there is no", "is no longer", and a value that a code span shows, as in "`[]` is no VF".
    Replaced(r"(?<!there )(?<!`` )\bis no (?!longer\b|more than\b)", "is not a", "A standby is no leader."),
    Replaced(
        r"\bseeds'|\bin the seeds\b(?! of)",
        "rit-k8s-rdma, KubeGPU or hustcat by name; together: earlier systems",
        "As in the seeds, the annotation counts.",
    ),
    Replaced(r"^#+ Free again\b", "When a VF can be reused", "## Free again"),
    Replaced(r"^#+ The guard$|\[the guard\]", "Admission policies", "See [the guard](guard.md)."),
    Replaced(r"^#+ (?:Who has to go|Whether others go for it)\b", "Preemption", "## Who has to go"),
    Replaced(r"^#+ Which pod is next\b", "Scheduling queue", "### Which pod is next"),
    Replaced(r"^#+ Who leads\b", "Leader election", "## Who leads"),
    Replaced(r"^#+ What is seen from outside\b", "Events and metrics", "## What is seen from outside"),
)


def prose(text: str) -> str:
    """Return a page's text without fenced and indented blocks and without what stands in code spans."""
    text = re.sub(r"^ *(`{3,}).*?^ *\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(?: {4}|\t).*$", "", text, flags=re.MULTILINE)
    return re.sub(r"``.+?``|`[^`]+`", "``", text, flags=re.DOTALL)


def found(text: str) -> list[tuple[str, Replaced]]:
    """Return each replaced phrase in a page's prose: the words around it, and what it is."""
    read = prose(text)
    return [
        (read[max(0, hit.start() - 30) : hit.end() + 30], phrase)
        for phrase in REPLACED
        for hit in re.finditer(phrase.pattern, read, re.IGNORECASE | re.MULTILINE)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_none_of_the_replaced_phrases(page: Path) -> None:
    """A reader meets one word for one thing: the one that Kubernetes, the kernel or the CNI has."""
    there = found(page.read_text(encoding="utf-8"))
    assert [f"{words!r}: write {phrase.instead}" for words, phrase in there] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_paragraph_is_longer_than_90_words(page: Path) -> None:
    """A reader looks for one thing: long paragraphs hide it. Tables are left out."""
    parts = re.split(r"\n\n|\n(?=\s*[-|#\d])", prose(page.read_text(encoding="utf-8")))
    assert [part for part in parts if len(part.split()) > 90 and part[0] != "|"] == []


@pytest.mark.parametrize("phrase", REPLACED, ids=str)
def test_each_phrase_is_found_where_it_stands(phrase: Replaced) -> None:
    """A pattern that matches nothing would let everything pass: each finds its own example, and no other does."""
    assert [what for _, what in found(f"A line.\n\n{phrase.example}\n")] == [phrase]


def test_plain_sentences_commands_and_quoted_messages_are_let_through() -> None:
    """Correct phrases that look alike are not reported: existence, values, seeds of random numbers, code."""
    page = """
There is no webhook, and the lease is no longer held. `[]` is no VF.
The simulation takes the seeds of its random numbers from a flag; a seeded loop prints them.

    kubectl explain whom     # anew

- `certificates read anew`, `… is no name of a node`: restart it.

```yaml
whom: anew
```
"""
    assert found(page) == []
