"""What admission does not let pass is a definite answer, whatever its code: nothing was written."""

from pathlib import Path

import msgspec
import pytest

from mooring.kube.failures import Conflict, Denied, Refused, Throttled, Unknown, failure
from tests.mooring.kube import admission_cases

RECORDED = admission_cases.by_name()


def test_every_case_is_recorded() -> None:
    """And none of them was carried out."""
    assert list(RECORDED) == [case.name for case in admission_cases.CASES]
    assert not any(line["is_written"] for line in RECORDED.values())


@pytest.mark.parametrize("case", RECORDED)
def test_a_recorded_answer_of_admission_is_a_denial_that_names_its_cause(case: str) -> None:
    """A webhook chooses its code; of a webhook that cannot be called it is 500, of a policy mostly 422."""
    line = RECORDED[case]
    failed = failure(line["status"], msgspec.json.encode(line["response"]), "1")
    assert isinstance(failed, Denied if line["is_denied"] else Unknown)
    if line["is_denied"]:
        assert ("hook.example.com" in str(failed)) != ("ValidatingAdmissionPolicy 'bad'" in str(failed))


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        # Of MutatingAdmissionPolicy, by apiserver's sources.
        (422, "policy 'p' with binding 'b' denied request: no", Denied),
        (422, 'policy "p" denied request: no', Denied),
        # What others say within a message shows nothing.
        (500, 'etcd says: admission webhook "w" denied the request', Unknown),
        (500, "Internal error occurred: etcdserver: request timed out", Unknown),
        (504, "Timeout: request did not complete within requested timeout - context deadline exceeded", Unknown),
        (500, 'conversion webhook for x.example.com/v1, Kind=X failed: Post "https://w": timed out', Unknown),
        (429, "Too many requests, please try again later.", Throttled),
        (409, 'Operation cannot be fulfilled on pods "p": the object has been modified', Conflict),
        (403, 'pods "p" is forbidden: User "u" cannot create resource "pods/binding"', Refused),
    ],
)
def test_only_texts_of_admission_are_a_denial(code: int, message: str, expected: type[Exception]) -> None:
    """Any other 5xx leaves open what has happened."""
    assert type(failure(code, msgspec.json.encode({"kind": "Status", "message": message}))) is expected


def test_a_proxys_page_is_no_denial() -> None:
    """Only a Status is the API server's."""
    page = msgspec.json.encode({"message": 'admission webhook "w" denied the request'})
    assert isinstance(failure(500, page), Unknown)
    assert isinstance(failure(500, b'admission webhook "w" denied the request'), Unknown)


@pytest.mark.apiserver
async def test_a_real_server_answers_as_recorded(own_server: Path, tmp_path: Path) -> None:
    """Code and message, but for what names the day."""
    found = {line["case"]: line async for line in admission_cases.record(own_server, tmp_path)}
    del found["webhook-answers-nothing"]
    for case, line in found.items():
        assert line == RECORDED[case]
