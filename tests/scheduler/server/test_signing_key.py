"""Signed assignments: the key's file, and what a Binding carries then."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)

from mooring import names
from mooring.annotations import rates_signature
from mooring.annotations.assignment_signature import key_id, read_signature, signed_bytes
from mooring.parsing import MAX_BYTES
from mooring.program.config import ConfigError
from scheduler.cycle.decisions import Bind
from scheduler.server.pb.binding_pb2 import Binding, Unknown
from scheduler.server.startup import load_signing_key
from scheduler.server.writes import MAGIC, binding
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.extender.scene import NOW, Scene

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))


def pem(key: Any = KEY, protected: KeySerializationEncryption | None = None) -> bytes:
    text: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protected or NoEncryption())
    return text


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "signing.pem"
    path.write_bytes(pem())
    return path


def test_without_a_file_nothing_is_signed() -> None:
    assert load_signing_key("") is None


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "cannot be read"),
        (pem(protected=BestAvailableEncryption(b"secret")), "cannot be read"),
        (pem(X25519PrivateKey.generate()), "is not an ed25519 key"),
    ],
)
def test_a_key_that_cannot_sign_is_refused_at_the_start(file: Path, content: bytes, complaint: str) -> None:
    """A scheduler that was to sign never binds without a signature."""
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=f"signing key {str(file)!r} {complaint}"):
        load_signing_key(str(file))
    with pytest.raises(ConfigError, match="cannot be read"):
        load_signing_key(f"{file}.no")


def check(decision: Bind) -> None:
    """Verify what the Binding carries, as a node does: by the exact bytes of both annotations."""
    sent = dict(Binding.FromString(Unknown.FromString(binding(decision).removeprefix(MAGIC)).raw).metadata.annotations)
    assert sent.keys() == {names.ASSIGNMENT, names.SIGNATURE}
    given = read_signature(sent[names.SIGNATURE])
    assert given.key == key_id(KEY.public_key().public_bytes_raw())
    KEY.public_key().verify(given.value, signed_bytes(sent[names.ASSIGNMENT].encode()))


@pytest.fixture
def scene(make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Callable[[str], Scene]:
    """Make a scheduler that signs with the key in a file, if any, and one node with a VF."""

    def make(file: str) -> Scene:
        scene = Scene(Machine("mooring", sign=load_signing_key(file)), make_pf, make_node, make_pod)
        scene.add_node("n1")
        return scene

    return make


def test_a_decision_carries_its_signature(scene: Callable[[str], Scene], file: Path) -> None:
    """Mooring's own pods; a repeated Binding has the same bytes, since ed25519 draws no random numbers."""
    signing = scene(str(file))
    signing.own_pod()
    (decision,) = [one for one in signing.machine.step(NOW) or () if isinstance(one, Bind)]
    check(decision)
    assert binding(decision) == binding(decision)


def test_a_pod_of_kube_schedulers_gets_a_signature_too(scene: Callable[[str], Scene], file: Path) -> None:
    """By the extender."""
    signing = scene(str(file))
    check(signing.reserve(signing.pod_info()))


def test_a_signature_counts_in_the_size_of_a_pods_annotations(scene: Callable[[str], Scene], file: Path) -> None:
    """The API server would refuse every later write to the pod; the assignment alone would just fit."""
    first, second, signing = scene(""), scene(""), scene(str(file))
    pod_info = first.pod_info()
    carried = {**pod_info.pod.annotations, **first.reserve(pod_info).annotations, "other": ""}
    pod = first.pod()
    pod.annotations["other"] = "x" * (MAX_BYTES - len("".join([*carried, *carried.values()])) - 2)
    second.reserve(second.read(pod))
    assert "annotations would have" in signing.refusal(signing.read(pod))


def test_rates_are_signed_by_the_same_key(file: Path) -> None:
    """As other bytes than an assignment's, so that neither signature stands for the other."""
    sign = load_signing_key(str(file))
    assert sign is not None
    signature = rates_signature.read_signature(sign.rates("{}"))
    assert signature.key == key_id(KEY.public_key().public_bytes_raw())
    KEY.public_key().verify(signature.value, rates_signature.signed_bytes(b"{}"))
    assert sign("{}") != sign.rates("{}")
