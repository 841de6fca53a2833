"""Which assignments a node believes that has the schedulers' public keys."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from structlog.testing import capture_logs

from cri_shim.pb import cri_pb2 as cri
from cri_shim.plan.inject import Inject, Record, Refuse, Rules, decide_container, decide_sandbox
from cri_shim.preflight import check_keys
from mooring import names
from mooring.annotations.assignment import dump_assignment, read_assignment
from mooring.annotations.assignment_keys import AssignmentKeys
from mooring.annotations.assignment_signature import AssignmentSignature, dump_signature, key_id, signed_bytes
from mooring.records.pod_record import PodRecord

OLD, NEW, STRANGER = (Ed25519PrivateKey.from_private_bytes(bytes([number] * 32)) for number in (1, 2, 3))
TEXT = "{not even JSON"


def pem(*keys: Ed25519PrivateKey) -> str:
    form = (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return "".join(key.public_key().public_bytes(*form).decode() for key in keys)


def id_of(key: Ed25519PrivateKey) -> str:
    return key_id(key.public_key().public_bytes_raw())


def signature(key: Ed25519PrivateKey, text: str = TEXT, named: Ed25519PrivateKey | None = None) -> bytes:
    return dump_signature(AssignmentSignature(id_of(named or key), key.sign(signed_bytes(text.encode())))).encode()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "assignment-keys.pem"


def test_without_a_file_every_assignment_is_believed(file: Path) -> None:
    """Signatures are the operator's choice."""
    keys = AssignmentKeys(file)
    assert keys.refusal(TEXT.encode(), None) == ""
    assert keys.refusal(TEXT.encode(), b"nonsense") == ""
    assert check_keys(keys).good


def test_with_a_key_only_what_it_has_signed_is_believed(file: Path) -> None:
    """To the last byte, and under its own id; the assignment itself is never parsed."""
    file.write_text(pem(OLD))
    keys = AssignmentKeys(file)
    assert keys.refusal(TEXT.encode(), signature(OLD)) == ""
    assert "is missing, and this node accepts only signed assignments" in keys.refusal(TEXT.encode(), None)
    assert f"key {id_of(STRANGER)!r} is not one of this node's ({id_of(OLD)})" in keys.refusal(
        TEXT.encode(), signature(STRANGER)
    )
    forged = "not the key's signature of this assignment"
    assert forged in keys.refusal(TEXT.encode(), signature(STRANGER, named=OLD))
    assert forged in keys.refusal(TEXT.encode() + b" ", signature(OLD))
    # Bytes that are signed for something else: without the prefix.
    bare = dump_signature(AssignmentSignature(id_of(OLD), OLD.sign(TEXT.encode()))).encode()
    assert forged in keys.refusal(TEXT.encode(), bare)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "\ufffd", "x" * 257, '{"v":2}', '{"v":1,"key":"A","ed25519":"="}', '{"v":1,"key":1}']
)
def test_a_signature_that_cannot_be_read_is_refused_by_its_place(file: Path, text: str) -> None:
    file.write_text(pem(OLD))
    assert f"annotation {names.SIGNATURE!r}" in AssignmentKeys(file).refusal(TEXT.encode(), text.encode())


def test_old_and_new_key_are_believed_while_keys_change(file: Path) -> None:
    """The file is read again when it changes; no restart."""
    file.write_text(pem(OLD))
    keys = AssignmentKeys(file)
    assert keys.refusal(TEXT.encode(), signature(NEW)) != ""
    file.write_text("# the new one is first\n" + pem(NEW, OLD))
    assert [keys.refusal(TEXT.encode(), signature(key)) for key in (OLD, NEW)] == ["", ""]
    assert set(keys.ids or ()) == {id_of(OLD), id_of(NEW)}
    file.write_text(pem(NEW))
    assert keys.refusal(TEXT.encode(), signature(NEW)) == ""
    assert keys.refusal(TEXT.encode(), signature(OLD)) != ""


_FORM = (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
_EC = generate_private_key(SECP256R1()).public_key().public_bytes(*_FORM).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        pem(OLD)[:-20],
        pem(OLD) + pem(NEW)[:-9],
        pem(OLD) * 17,
        pem(OLD) + _EC,
        pem(OLD).upper(),
    ],
)
def test_a_file_that_cannot_be_used_lets_nothing_pass(file: Path, text: str) -> None:
    """Half of a change must not be an open door; it is told once, and the next good file works."""
    file.write_text(pem(OLD))
    keys = AssignmentKeys(file)
    file.write_text(text)
    with capture_logs() as logs:
        for _ in range(2):
            assert "cannot be used" in keys.refusal(TEXT.encode(), signature(OLD))
    assert [line["event"] for line in logs] == ["assignment keys cannot be used"]
    assert not check_keys(AssignmentKeys(file)).good
    file.write_text(pem(OLD) + "\n")
    assert keys.refusal(TEXT.encode(), signature(OLD)) == ""


def test_a_file_that_goes_away_or_that_others_may_write_lets_nothing_pass(file: Path) -> None:
    """An editor moves it aside; only a restart takes its absence for the operator's word."""
    file.write_text(pem(OLD))
    keys = AssignmentKeys(file)
    file.rename(file.with_suffix(".bak"))
    assert "the file was removed" in keys.refusal(TEXT.encode(), signature(OLD))
    assert "the file was removed" in keys.refusal(TEXT.encode(), None)
    file.with_suffix(".bak").rename(file)
    assert keys.refusal(TEXT.encode(), signature(OLD)) == ""
    file.chmod(0o666)
    file.write_text(pem(OLD, STRANGER))
    assert "users other than root" in keys.refusal(TEXT.encode(), signature(STRANGER))
    file.unlink()
    assert AssignmentKeys(file).refusal(TEXT.encode(), None) == ""


def config(make: Any, annotations: Mapping[str, str]) -> tuple[Any, Any]:
    run = cri.RunPodSandboxRequest.FromString(make.run(annotations))
    return run, cri.CreateContainerRequest.FromString(make.create(annotations))


def test_the_shim_refuses_before_it_parses(make: Any, file: Path) -> None:
    """A pod's first sandbox; what is not JSON at all is refused for its signature."""
    file.write_text(pem(OLD))
    rules = Rules("n1", signature_refusal=AssignmentKeys(file).refusal)
    for text in (make.annotations[names.ASSIGNMENT], "{" * 100_000):
        for run in config(make, {**make.annotations, names.ASSIGNMENT: text}):
            decide = decide_sandbox if isinstance(run, cri.RunPodSandboxRequest) else decide_container
            decision = decide(run, None, rules)
            assert isinstance(decision, Refuse)
            assert names.SIGNATURE in decision.reason
    text = make.annotations[names.ASSIGNMENT]
    run, _ = config(make, {**make.annotations, names.SIGNATURE: signature(OLD, text).decode()})
    assert isinstance(decide_sandbox(run, None, rules), Record)


def test_what_is_recorded_needs_no_key_any_more(make: Any, file: Path) -> None:
    """Old keys go while pods run: the same bytes are the record's. Anything else needs a signature as before."""
    file.write_text(pem(NEW))
    rules = Rules("n1", signature_refusal=AssignmentKeys(file).refusal)
    assignment = read_assignment(make.annotations[names.ASSIGNMENT])
    record, text = PodRecord("ml/web", assignment), dump_assignment(assignment)
    _, create = config(make, {**make.annotations, names.ASSIGNMENT: text})
    assert isinstance(decide_container(create, record, rules), Inject)
    # Equal, but not as the scheduler writes it.
    _, create = config(make, {**make.annotations, names.ASSIGNMENT: json.dumps(json.loads(text), indent=1)})
    assert isinstance(decide_container(create, record, rules), Refuse)
    other = text.replace('"vf":3', '"vf":5')
    _, create = config(make, {**make.annotations, names.ASSIGNMENT: other})
    assert isinstance(decide_container(create, record, rules), Refuse)
    _, create = config(
        make, {**make.annotations, names.ASSIGNMENT: other, names.SIGNATURE: signature(NEW, other).decode()}
    )
    assert "differs from the assignment recorded" in getattr(decide_container(create, record, rules), "reason", "")
