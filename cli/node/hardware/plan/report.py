"""The report of a hardware test, as JSON and as text: without addresses, GUIDs, serial numbers and host names."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

from cli.node.hardware.plan.checks import BY_ID, STAGES, Answer, Outcome, differs, in_order

VERSION = 1
_HEX = "[0-9A-Fa-f]"
# MACs and IPoIB's addresses, by bytes; GUIDs and GIDs, by four digits; both as one number; udev's names by MAC; GIDs as
# perftest prints them, by bytes in decimal.
_PRIVATE = re.compile(
    rf"(?<![0-9A-Fa-f:])(?:{_HEX}{{2}}[:-]){{5,19}}{_HEX}{{2}}(?![0-9A-Fa-f:])"
    rf"|(?<![0-9A-Fa-f:])(?:{_HEX}{{4}}:){{3,7}}{_HEX}{{4}}(?![0-9A-Fa-f:])"
    r"|(?<![0-9:])(?:[0-9]{2,3}:){15}[0-9]{2,3}(?![0-9:])"
    rf"|\b0x{_HEX}{{12,16}}\b|(?<=\b[a-z]{{2}}x){_HEX}{{12}}|\b{_HEX}{{12}}\b|\b{_HEX}{{16}}\b"
)
_NAME = re.compile(r"[^A-Za-z0-9.]+")
_MASK, _HOST = "-masked-", "-host-"


@dataclass(frozen=True, slots=True)
class Subject:
    """What was tested: a PF by its ids, its driver and firmware, its link and line rate in Mb/s, and the kernel."""

    vendor: str
    device: str
    driver: str
    firmware: str
    link: str
    mbps: int
    kernel: str
    machine: str
    mooring: str


@dataclass(frozen=True, slots=True)
class Report:
    """The answers about one PF."""

    subject: Subject
    answers: tuple[Answer, ...]


def build(subject: Subject, answers: Sequence[Answer], hosts: Collection[str]) -> Report:
    """Return the report with everything masked; ``hosts`` are this machine's names."""
    words = [name for name in sorted(hosts, key=len, reverse=True) if name and name != "localhost"]
    cleaned = tuple(
        Answer(answer.check, answer.outcome, _clean_fields(answer.found, words), masked(answer.why, words))
        for answer in in_order(answers)
    )
    kept: dict[str, Any] = {name: _clean(value, words) for name, value in asdict(subject).items()}
    return Report(Subject(**kept), cleaned)


def masked(text: str, hosts: Collection[str]) -> str:
    """Return a text without addresses, GUIDs and the names of hosts."""
    text = _PRIVATE.sub(_MASK, text)
    for name in hosts:
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", _HOST, text)
    return text


def _clean_fields(found: Mapping[str, object], hosts: Collection[str]) -> dict[str, object]:
    """Return a mapping's fields, masked; serial numbers by their name, as devlink has them."""
    kept = ((key, value) for key, value in found.items() if "serial" not in key.lower())
    return {masked(key, hosts): _clean(value, hosts) for key, value in kept}


def _clean(value: object, hosts: Collection[str]) -> object:
    if isinstance(value, str):
        return masked(value, hosts)
    if isinstance(value, Mapping):
        return _clean_fields(value, hosts)
    return [_clean(item, hosts) for item in value] if isinstance(value, list | tuple) else value


def file_name(subject: Subject) -> str:
    """Return the report's name without a suffix: NIC, driver, firmware and kernel."""
    parts = (f"{subject.vendor}-{subject.device}", subject.driver, subject.firmware or "nofw", subject.kernel)
    return "mooring-hardware_" + "_".join(_NAME.sub("-", part).strip("-") for part in parts)


def as_json(report: Report) -> str:
    answers = [
        {
            "id": answer.check,
            "stage": BY_ID[answer.check].stage,
            "question": BY_ID[answer.check].question,
            "calls": BY_ID[answer.check].calls,
            "outcome": answer.outcome,
            "why": answer.why,
            "found": answer.found,
        }
        for answer in report.answers
    ]
    document = {"v": VERSION, "subject": asdict(report.subject), "ok": not differs(report.answers), "answers": answers}
    return json.dumps(document, indent=1, sort_keys=True)


def as_text(report: Report) -> str:
    """Return the report as text: the subject, then for each check its outcome, its question and what was found."""
    lines = [f"{name:9} {value}" for name, value in asdict(report.subject).items()]
    for stage in STAGES:
        lines += ["", f"[{stage}]"]
        for answer in report.answers:
            if BY_ID[answer.check].stage == stage:
                lines += _answer(answer)
    counts = [f"{_count(report, outcome)} {outcome}" for outcome in get_args(Outcome)]
    return "\n".join([*lines, "", ", ".join(counts)])


def _answer(answer: Answer) -> Iterator[str]:
    yield f"{answer.outcome:9} {answer.check:22} {BY_ID[answer.check].question}"
    if answer.why:
        yield f"{'':33}{answer.why}"
    for name, value in answer.found.items():
        yield f"{'':33}{name}: {value if isinstance(value, str) else json.dumps(value)}"


def _count(report: Report, outcome: str) -> int:
    return sum(answer.outcome == outcome for answer in report.answers)
