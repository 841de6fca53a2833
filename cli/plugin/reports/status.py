"""`kubectl mooring status`: one line for each check, and what to do where one fails. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cli.plugin.reports.checks import CHECKS, Check, Finding, Patient, some
from cli.plugin.reports.tables import Answer, Cell, Table, Tone

State = Literal["ok", "warning", "error"]
_TONES: Mapping[State, Tone] = {"ok": "good", "warning": "warning", "error": "bad"}
_SYMBOLS: Mapping[State, str] = {"ok": "\N{HEAVY CHECK MARK}", "warning": "!", "error": "\N{BALLOT X}"}


@dataclass(frozen=True, slots=True)
class Result:
    """What a check has found; ``text`` is a line about it."""

    check: str
    state: State
    text: str
    findings: tuple[Finding, ...] = ()
    remedy: str = ""
    page: str = ""


def examine(patient: Patient) -> list[Result]:
    """Return the results of all checks."""
    return [_result(check, tuple(check.find(patient)), patient) for check in CHECKS]


def unreachable(why: str) -> list[Result]:
    """Return the results where the API server gives no usable answer: the other checks are unknown."""
    check = CHECKS[0]
    finding = Finding("error", check.name, why, "check the kubeconfig with `kubectl cluster-info`")
    return [_failed(check, (finding,))]


def _result(check: Check, findings: tuple[Finding, ...], patient: Patient) -> Result:
    return _failed(check, findings) if findings else Result(check.name, "ok", check.good(patient))


def _failed(check: Check, findings: tuple[Finding, ...]) -> Result:
    """Return a result in the words of its first finding, an error if there is one, and all subjects of it."""
    first = min(findings, key=lambda finding: finding.level)
    subjects = [finding.subject for finding in findings if (finding.level, finding.found) == (first.level, first.found)]
    about = "" if subjects == [check.name] else f"{some(subjects)}: "
    more = len(findings) - len(subjects)
    text = f"{about}{first.found}" + (f" (and {more} more: doctor lists them)" if more else "")
    return Result(check.name, first.level, text, findings, first.remedy, f"docs/{check.page}")


def report(results: Sequence[Result], *, symbols: bool) -> Answer:
    """Return the results as lines; status 1 if any is an error."""
    is_well = not any(result.state == "error" for result in results)
    document = {"kind": "MooringStatus", "v": 1, "ok": is_well, "checks": items(results)}
    return Answer(document, (table(results, symbols=symbols),), status=0 if is_well else 1)


def failing_checks(answer: Answer) -> list[str]:
    """Return the names of the checks of a report that found an error."""
    checks = answer.document["checks"]
    assert isinstance(checks, list), "a report has its checks"
    return [check["check"] for check in checks if check["state"] == "error"]


def items(results: Sequence[Result]) -> list[dict[str, object]]:
    """Return the results for programs."""
    return [
        {
            "check": result.check,
            "state": result.state,
            "text": result.text,
            "remedy": result.remedy,
            "page": result.page,
        }
        for result in results
    ]


def table(results: Sequence[Result], *, symbols: bool) -> Table:
    """Return a row for each check, and below one that fails what to do and where to read on."""
    rows: list[tuple[Cell, ...]] = []
    for result in results:
        mark = Cell(_SYMBOLS[result.state] if symbols else result.state, _TONES[result.state])
        rows.append((mark, Cell(result.check), Cell(result.text)))
        if result.state != "ok":
            advice = "; ".join(filter(None, (result.remedy, f"see {result.page}")))
            rows.append((Cell(""), Cell(""), Cell(advice, "faint")))
    return Table(("", "", ""), rows)
