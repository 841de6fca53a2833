"""Every row of the bind table, from recorded answers of a real API server."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from mooring.kube.failures import KubeError, Throttled, Unknown, failure
from scheduler.kube.outcomes import Outcome, classify, compare
from tests.scheduler.conftest import MakePod

RECORDED = Path(__file__).parents[2] / "devcluster" / "recorded.jsonl"


def _recorded(path_end: str, code: int, text: str) -> KubeError:
    """Return the failure of a recorded answer, found by its path, status and a part of its message."""
    for line in RECORDED.read_text().splitlines():
        pair = msgspec.json.decode(line)
        if pair["path"].endswith(path_end) and pair["status"] == code and text in str(pair["response"]):
            return failure(code, msgspec.json.encode(pair["response"]))
    raise LookupError(f"nothing recorded for {path_end!r}, {code!r}, {text!r}")


@pytest.mark.parametrize(
    ("path_end", "code", "text", "expected"),
    [
        ("p1/binding", 409, "UID in precondition", "changed"),
        ("prv/binding", 409, "StorageError", "changed"),
        ("p1/binding", 409, 'already assigned to node "n1"', "look"),
        ("race0/binding", 409, "already assigned", "look"),
        ("pg/binding", 409, "schedulingGates", "gated"),
        ("pd/binding", 409, "is being deleted", "deleting"),
        ("nope/binding", 404, "not found", "gone"),
        ("p1/binding", 400, "name in URL", "refused"),
        ("ph/binding", 409, "ResourceExhausted", "refused"),
        ("ph2/binding", 413, "too large", "refused"),
        ("prb/binding", 403, "forbidden", "forbidden"),
        ("pods/p1", 422, "", "refused"),
    ],
)
def test_a_definite_answer_has_one_meaning(path_end: str, code: int, text: str, expected: str) -> None:
    """Told apart by status, details.kind and message, as kube-apiserver v1.36 gives them."""
    found = classify(_recorded(path_end, code, text))
    assert ("look" if found is None else found.kind) == expected


def test_answers_of_no_known_meaning_are_not_an_outcome() -> None:
    """A server error, also one without a reason, as for an empty target: the bind may have happened or not.

    Too many requests, which says how long to wait; a conflict in a text that no known version uses.
    """
    assert all(isinstance(_recorded("p1/binding", 500, text), Unknown) for text in ("target.name", "target.kind"))
    throttled = failure(429, b"", "3")
    assert isinstance(throttled, Throttled)
    assert throttled.retry_after_s == 3.0
    body = {"kind": "Status", "reason": "Conflict", "message": "so it goes", "details": {"kind": "pods/binding"}}
    assert classify(failure(409, msgspec.json.encode(body))) is None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"node": "n1", "annotations": {"k": "ours"}}, "bound"),
        ({"node": "n1", "annotations": {"k": "theirs"}}, "taken"),
        ({"node": "n1"}, "taken"),
        ({"node": "n2", "annotations": {"k": "ours"}}, "taken"),
        ({}, "changed"),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, "deleting"),
        ({"spec": {"schedulingGates": [{"name": "g"}]}}, "gated"),
        ({"node": "n1", "annotations": {"k": "ours"}, "metadata": {"uid": "another"}}, "gone"),
    ],
)
def test_a_pod_read_back_tells_whether_the_bind_was_ours(
    fields: dict[str, Any], expected: str, make_pod: MakePod
) -> None:
    found: Outcome = compare(make_pod(**fields), "uid-0", "n1", {"k": "ours"})
    assert found.kind == expected
