"""The report of `mooring-node check`: what is written is read, and nothing else breaks a reader."""

import json
from datetime import UTC, datetime

import pytest

from mooring.errors import RecordError
from mooring.parsing import MAX_BYTES
from mooring.records.node_check import Finding, NodeCheck, dump_node_check, read_node_check

AT = datetime(2026, 11, 22, 14, tzinfo=UTC)
CHECK = NodeCheck(AT, "runtime", "config.yaml: …", (Finding("kubelet", "config.yaml", "does not say …"),))


def test_what_is_written_is_read() -> None:
    """Its time is to the second, as in all records."""
    assert read_node_check(dump_node_check(CHECK)) == CHECK
    assert '"at":"2026-11-22T14:00:00Z"' in dump_node_check(CHECK)


def test_a_field_of_a_newer_mooring_node_is_ignored() -> None:
    """The programs may be of different versions."""
    document = json.loads(dump_node_check(CHECK))
    document["findings"][0]["since"] = 7
    assert read_node_check(json.dumps(document | {"more": 1})) == CHECK


def test_however_much_is_found_the_report_can_be_read() -> None:
    """Long texts are cut, and of many findings the first remain."""
    findings = tuple(Finding(f"step {number}", "s" * 9000, "f" * 9000) for number in range(1000))
    text = dump_node_check(NodeCheck(AT, "unknown", "w" * 9000, findings))
    assert len(text.encode()) < MAX_BYTES
    read = read_node_check(text)
    assert [each.step for each in read.findings] == [f"step {number}" for number in range(50)]


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"kubelet": "elsewhere"},
        {"at": "2026-11-22"},
        {"at": "2026-13-22T14:00:00Z"},
        {"findings": [{}]},
        {"why": 1},
    ],
)
def test_anything_else_is_refused(change: dict[str, object]) -> None:
    """By name, as every record is."""
    with pytest.raises(RecordError, match=r"node-check\.json"):
        read_node_check(json.dumps(json.loads(dump_node_check(CHECK)) | change))
