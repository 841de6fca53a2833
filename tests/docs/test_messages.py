"""Every text that the programs can print has its entry in the troubleshooting pages, and no entry is of no use."""

import re
from typing import get_args, get_type_hints

import yaml

from advertiser.formats import vf_events
from scheduler.cycle.instructions import Report
from tests.docs import texts

DOCS = texts.ROOT / "docs"
GUARD = texts.ROOT / "manifests/base/guard"
OF_COMPONENTS = texts.ROOT / "manifests/components"
_SPAN = re.compile(r"``\s?(.+?)\s?``|`([^`]+)`", re.DOTALL)
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')

# Strings of two words that are not messages: by their beginning, with the reason.
NOT_PRINTED = {
    "A support bundle of Mooring, made by": "a file that support-bundle writes",
    "#!": "the forwarder's own source; what it prints has entries",
    "HTTP/1.1 …": "the head of an HTTP answer",
    "CONNECT … HTTP/1.1": "the head of a request",
    "import sys; open(": "a program for a subprocess",
    "# ": "files that mooring-node writes",
    "[Service] Environment=": "likewise",
    "options ib_core netns_mode=": "likewise, by the advertiser",
    "text/plain; version=": "a media type",
    "Content-Type": "a request's head",
    "Precondition failed": "read in an answer of the API server's",
    "Version RunPodSandbox": "names of CRI methods",
    "GetContainerEvents StreamPodSandboxes": "names of CRI methods",
    "ListImages ImageStatus": "likewise",
    "scored ": "a column's name",
    "kubectl mooring": "a program's name",
    "Show which pods hold": "a command's help",
    "No new pod gets a drained": "likewise",
    "Report what goes wrong with the VFs": "likewise",
    "#compdef kubectl-mooring": "a shell's script, as those of bash and fish",
    "grep -sH": "a command's arguments",
    "Device Minor": "read in a file of NVIDIA's driver",
    "GPU Excluded": "likewise",
    "GPU UUID": "likewise",
    "bridges from the root": "a column's name",
    r"\bnot implemented": "read in an answer of an IPAM plugin",
    "netns exclusive": "read in the answer of `rdma system show`",
    "Number of VFs that more than one live pod claims": "the description of a metric",
    "Number of placement searches on one node": "likewise",
}


def entries() -> dict[str, str]:
    """Return the pages' entries as patterns, each with its page."""
    found: dict[str, str] = {}
    for page in sorted(DOCS.glob("messages-*.md")):
        for item in re.split(r"^- ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            for text in _leading_spans(item):
                found.setdefault(texts.normal(text), page.name)
    return found


def _leading_spans(item: str) -> list[str]:
    """Return the code spans that an item begins with: they end where prose begins."""
    found, end = [], 0
    for span in _SPAN.finditer(item):
        if item[end : span.start()].strip() not in ("", ","):
            break
        found.append(" ".join((span[1] or span[2]).split()))
        end = span.end()
    return found


def forwarded() -> list[texts.Text]:
    """Return the forwarder's own answers: its source is one string of the source."""
    path = texts.ROOT / "cni/forwarder.py"
    answers = re.findall(r'"msg":"([^"]+)"', path.read_text(encoding="utf-8").replace("\\\\'", "'"))
    return [texts.Text(texts.normal(text), path.name) for text in answers]


def guard_texts() -> list[texts.Text]:
    """Return what the admission policies refuse in: messages, and the literals of message expressions."""
    found: list[texts.Text] = []
    for path in sorted([*GUARD.glob("*.yaml"), *OF_COMPONENTS.glob("*/policy.yaml")]):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            for rule in (document or {}).get("spec", {}).get("validations", ()):
                spoken = [rule["message"], *_literals(rule.get("messageExpression", ""))]
                found += [texts.Text(texts.normal(text), path.name) for text in spoken]
    return [text for text in found if " " in text.pattern and len(re.findall(r"[A-Za-z]{2,}", text.pattern)) > 1]


def _literals(expression: str) -> list[str]:
    return [literal.replace('\\"', '"') for literal in _LITERAL.findall(expression)]


def printed() -> list[texts.Text]:
    source = [text for text in texts.texts() if not text.pattern.startswith(tuple(NOT_PRINTED))]
    return [*source, *forwarded(), *guard_texts()]


def test_every_text_that_can_be_printed_has_an_entry() -> None:
    """A message without an entry is one whose reader is left alone; write one in the page that fits."""
    known = entries()
    missing = sorted({f"{text.pattern!r} ({text.place})" for text in printed() if text.pattern not in known})
    assert missing == [], "add to docs/messages-*.md as '- `text …`: meaning, what to do':\n" + "\n".join(missing)


def test_every_events_reason_has_an_entry() -> None:
    """The reasons by which a person filters events; a condition's reasons appear in the event `FailedScheduling`."""
    page = (DOCS / "messages-pods.md").read_text(encoding="utf-8")
    section = page.split("## Events by reason\n", 1)[1].split("\n## ", 1)[0]
    listed = {text for item in section.split("\n- ")[1:] for text in _leading_spans(item)}
    of_vfs = {vf_events.LOST_REASON, vf_events.RESET_REASON, vf_events.DEVICES_REASON, vf_events.RATES_REASON}
    of_vfs.add(vf_events.PORT_REASON)
    assert listed == {*get_args(get_type_hints(Report)["reason"]), "FailedScheduling", *of_vfs}


def test_every_entry_is_a_text_of_the_code() -> None:
    """An entry whose message is gone or reworded is an error: a reader could never find it."""
    there = {text.pattern for text in [*texts.strings(), *forwarded(), *guard_texts()]}
    stale = sorted(f"{text!r} ({page})" for text, page in entries().items() if text not in there)
    assert stale == []
