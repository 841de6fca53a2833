"""Signed assignments: the key's file, and what a Binding carries then."""

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
from mooring.kube.events import Changed, Identity
from mooring.parsing import MAX_BYTES
from mooring.program.config import ConfigError
from scheduler.cycle.decisions import Bind
from scheduler.kube.objects import Node, Pod
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.server.pb.binding_pb2 import Binding, Unknown
from scheduler.server.startup import load_signing_key
from scheduler.server.writes import MAGIC, binding
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
NOW = 1000.0
FOREIGN = {"schedulerName": "default-scheduler"}


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


class Scene:
    """A scheduler that signs with the key in ``file``, and one node with a VF."""

    def __init__(self, file: str, node: Node) -> None:
        self.machine = Machine("mooring", sign=load_signing_key(file))
        self.machine.nodes(Changed(Identity("", "n1", "", ""), node), NOW)

    def see(self, pod: Pod) -> None:
        meta = pod.metadata
        self.machine.pods(Changed(Identity(meta.namespace, meta.name, meta.uid, ""), pod), NOW)


@pytest.fixture
def scene(file: Path, make_node: MakeNode, make_pf: MakePf) -> Scene:
    return Scene(str(file), make_node("n1", (make_pf(vfs=1),)))


def test_a_decision_carries_its_signature(scene: Scene, make_pod: MakePod) -> None:
    """Mooring's own pods; a repeated Binding has the same bytes, since ed25519 draws no random numbers."""
    scene.see(make_pod(request=[{}]))
    (decision,) = [one for one in scene.machine.step(NOW) or () if isinstance(one, Bind)]
    check(decision)
    assert binding(decision) == binding(decision)


def test_a_pod_of_kube_schedulers_gets_a_signature_too(scene: Scene, make_pod: MakePod) -> None:
    """By the extender."""
    check(_reserved(scene, make_pod(request=[{}], spec=FOREIGN)))


def _reserve(scene: Scene, pod: Pod) -> Bind | Refused:
    scene.see(pod)
    pod_info = scene.machine.extender_pods.read(pod)
    assert isinstance(pod_info, PodInfo)
    return scene.machine.extender_pods.reserve(pod_info, "n1", NOW)


def _reserved(scene: Scene, pod: Pod) -> Bind:
    decision = _reserve(scene, pod)
    assert isinstance(decision, Bind)
    return decision


def test_a_signature_counts_in_the_size_of_a_pods_annotations(
    scene: Scene, make_node: MakeNode, make_pf: MakePf, make_pod: MakePod
) -> None:
    """The API server would refuse every later write to the pod; the assignment alone would just fit."""
    unsigned = Scene("", make_node("n1", (make_pf(vfs=1),)))
    pod = make_pod(request=[{}], spec=FOREIGN)
    carried = {**pod.annotations, **_reserved(unsigned, pod).annotations, "other": ""}
    pod = make_pod(request=[{}], spec=FOREIGN)
    pod.annotations["other"] = "x" * (MAX_BYTES - len("".join([*carried, *carried.values()])) - 2)
    assert isinstance(_reserve(Scene("", make_node("n1", (make_pf(vfs=1),))), pod), Bind)
    assert "annotations would have" in str(_reserve(scene, pod))


def test_rates_are_signed_by_the_same_key(file: Path) -> None:
    """As other bytes than an assignment's, so that neither signature stands for the other."""
    sign = load_signing_key(str(file))
    assert sign is not None
    signature = rates_signature.read_signature(sign.rates("{}"))
    assert signature.key == key_id(KEY.public_key().public_bytes_raw())
    KEY.public_key().verify(signature.value, rates_signature.signed_bytes(b"{}"))
    assert sign("{}") != sign.rates("{}")
