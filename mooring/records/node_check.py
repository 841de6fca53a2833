"""The last report of `mooring-node check`, ``<run>/extract/node-check.json``: written by its timer, as root.

    {"v":1,"at":"2026-11-22T14:00:00Z","kubelet":"runtime","why":"/var/lib/kubelet/config.yaml: does not contain …",
      "findings":[{"step":"kubelet","subject":"/var/lib/kubelet/config.yaml","found":"does not contain …"}]}

``kubelet`` is the socket that the kubelet uses: `shim`, `runtime` (another socket, by mistake), `bypass` (another
socket, because the operator ran `mooring-node bypass on`) or `unknown`. ``why`` is empty for `shim`, unless that comes
from configuration files and there was no call yet. The advertiser derives metrics, the node's condition and Events from
the report. The file is replaced every two minutes, so an old file means that the check does not run. Readers ignore
unknown fields, because the programs can be of different versions while a node is upgraded.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from mooring.errors import RecordError
from mooring.parsing import Value, dump, parse
from mooring.records.extract import FOLDER

NAME = f"{FOLDER}/node-check.json"
KubeletSocket = Literal["shim", "runtime", "bypass", "unknown"]
_MOST_FINDINGS, _LONGEST = 50, 512
FORMAT = "%Y-%m-%dT%H:%M:%SZ"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference from the installed state: the step, the subject, and what was found."""

    step: str
    subject: str
    found: str


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """The report of one check; ``at`` is its time in UTC."""

    at: datetime
    kubelet: KubeletSocket
    why: str = ""
    findings: Sequence[Finding] = ()


def read_node_check(text: str) -> NodeCheck:
    """Read the file's text; raise RecordError."""
    document = parse(text, NAME, RecordError).version(1).fields()
    return NodeCheck(
        at=read_time(document.required("at")),
        kubelet=document.required("kubelet").choice("shim", "runtime", "bypass", "unknown"),
        why=document.required("why").string(_LONGEST),
        findings=tuple(map(_finding, document.required("findings").items(_MOST_FINDINGS))),
    )


def dump_node_check(check: NodeCheck) -> str:
    """Return the file's text; omit findings, and parts of texts, beyond the limits."""
    findings = [
        {"step": finding.step[:_LONGEST], "subject": finding.subject[:_LONGEST], "found": finding.found[:_LONGEST]}
        for finding in check.findings[:_MOST_FINDINGS]
    ]
    at = check.at.strftime(FORMAT)
    return dump({"v": 1, "at": at, "kubelet": check.kubelet, "why": check.why[:_LONGEST], "findings": findings})


def read_time(value: Value) -> datetime:
    text = value.match(_TIME, "a time such as '2026-11-22T14:00:00Z'")
    try:
        return datetime.strptime(text, FORMAT).replace(tzinfo=UTC)
    except ValueError:
        value.fail(f"{text!r} is not a valid date")


def _finding(value: Value) -> Finding:
    fields = value.fields()
    step, subject, state = (fields.required(name).string(_LONGEST) for name in ("step", "subject", "found"))
    return Finding(step, subject, state)
