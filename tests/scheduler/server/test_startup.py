"""What the scheduler reads at its start: its signing key, the admission policies."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from devcluster.apiserver.http.faults import Fault
from mooring import names
from mooring.annotations import rates_signature
from mooring.annotations.assignment_signature import key_id, read_signature, signed_bytes
from mooring.kube.guard import BINDINGS_PATH, POLICIES, POLICIES_PATH
from mooring.parsing import MAX_BYTES
from mooring.program.config import ConfigError
from scheduler.server.pb.binding_pb2 import Binding, Unknown
from scheduler.server.startup import CONDITION, PolicyCheck, load_signing_key
from scheduler.server.writes import MAGIC, binding
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.extender.scene import Scene
from tests.scheduler.server.cluster import Cluster, own_server_only

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
GUARD = Path(__file__).parents[3] / "manifests/base/guard"
POD = "scheduler-0"
PATHS = {"ValidatingAdmissionPolicy": POLICIES_PATH, "ValidatingAdmissionPolicyBinding": BINDINGS_PATH}


def pem(key: Any = KEY, password: bytes = b"") -> bytes:
    protection = BestAvailableEncryption(password) if password else NoEncryption()
    text: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection)
    return text


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "signing.pem"
    path.write_bytes(pem())
    return str(path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "cannot be read"),
        (pem(password=b"secret"), "cannot be read"),
        (pem(X25519PrivateKey.generate()), "is not an ed25519 key"),
    ],
)
def test_a_key_that_cannot_sign_is_refused_at_the_start(file: str, content: bytes, complaint: str) -> None:
    """A scheduler that was to sign never binds without a signature; without a file nothing is signed."""
    Path(file).write_bytes(content)
    with pytest.raises(ConfigError, match=f"signing key {file!r} {complaint}"):
        load_signing_key(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_signing_key(f"{file}.no")
    assert load_signing_key("") is None


@pytest.fixture
def scene(make_node: MakeNode, make_pf: MakePf, make_pod: MakePod) -> Callable[[str], Scene]:
    """Make a scheduler that signs with the key in a file, if any, and one node with a VF."""

    def make(file: str) -> Scene:
        scene = Scene(Machine("mooring", sign=load_signing_key(file)), make_node, make_pf, make_pod)
        scene.add_node("n1")
        return scene

    return make


def test_a_pod_of_kube_schedulers_gets_a_signature(scene: Callable[[str], Scene], file: str) -> None:
    """By the extender. A node verifies the exact bytes of both annotations, which a repeated Binding has too."""
    signing = scene(file)
    signing.come("a")
    assert signing.reserve("a") == ""
    sent = binding(signing.decisions["a"])
    assert sent == binding(signing.decisions["a"])
    carried = dict(Binding.FromString(Unknown.FromString(sent.removeprefix(MAGIC)).raw).metadata.annotations)
    assert carried.keys() == {names.ASSIGNMENT, names.SIGNATURE}
    signature = read_signature(carried[names.SIGNATURE])
    assert signature.key == key_id(KEY.public_key().public_bytes_raw())
    KEY.public_key().verify(signature.value, signed_bytes(carried[names.ASSIGNMENT].encode()))


def test_a_signature_counts_in_the_size_of_a_pods_annotations(scene: Callable[[str], Scene], file: str) -> None:
    """The API server would refuse every later write to the pod; the assignment alone would just fit."""
    plain, long, signing = scene(""), scene(""), scene(file)
    for each in (plain, long, signing):
        each.come("a")
    assert plain.reserve("a") == ""
    carried = {**plain.pods["a"].annotations, **plain.decisions["a"].annotations, "other": ""}
    filler = "x" * (MAX_BYTES - len("".join([*carried, *carried.values()])))
    for each in (long, signing):
        each.pods["a"].annotations["other"] = filler
    assert long.reserve("a") == ""
    assert "annotations would have" in signing.reserve("a")


def test_rates_are_signed_by_the_same_key(file: str) -> None:
    """As other bytes than an assignment's, so that neither signature stands for the other."""
    sign = load_signing_key(file)
    assert sign is not None
    signature = rates_signature.read_signature(sign.rates("{}"))
    assert signature.key == key_id(KEY.public_key().public_bytes_raw())
    KEY.public_key().verify(signature.value, rates_signature.signed_bytes(b"{}"))
    assert sign("{}") != sign.rates("{}")


@pytest.fixture
async def check(cluster: Cluster) -> PolicyCheck:
    """Give a cluster that has the scheduler's own pod, and no policy."""
    await cluster.add_pod(POD)
    return PolicyCheck(cluster.client, f"default/{POD}")


async def shown(cluster: Cluster, check: PolicyCheck) -> tuple[str, str, str, list[tuple[str, str]]]:
    """Check; return what the pod's condition says, and the policies or events that are logged, by level."""
    with capture_logs() as lines:
        await check.check()
    now = await cluster.reaches(POD, CONDITION)
    logged = [(line["log_level"], line.get("policy", line["event"])) for line in lines]
    return now.status, now.reason or "", now.message or "", logged


def states() -> dict[str, set[str]]:
    """Return the states that the metric has, by policy."""
    name, values = "mooring_admission_policies", ("bound", "missing", "unbound", "unknown")
    return {
        policy: {state for state in values if REGISTRY.get_sample_value(name, {"policy": policy, "state": state})}
        for policy in POLICIES
    }


@own_server_only
async def test_unbound_policies_are_reported_and_so_is_their_return(cluster: Cluster, check: PolicyCheck) -> None:
    """By metric, condition and log, and once; each state of a policy excludes the others.

    A scheduler that may not read them reports neither that they are missing nor that all is well.
    """
    why = "; ".join(f"{policy}: ValidatingAdmissionPolicy is missing" for policy in POLICIES)
    unbound = "False", "NotBound", why
    assert await shown(cluster, check) == (*unbound, [("error", policy) for policy in POLICIES])
    assert await shown(cluster, check) == (*unbound, [])
    assert states() == {key: {"missing"} for key in POLICIES}
    for file in sorted(GUARD.glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            if document["kind"] in PATHS:
                await cluster.call("POST", PATHS[document["kind"]], document)
    assert await shown(cluster, check) == ("True", "Bound", "", [("info", "admission policies are bound")])
    assert states() == {key: {"bound"} for key in POLICIES}
    await cluster.patch(f"{BINDINGS_PATH}/mooring-inventory", spec={"validationActions": ["Audit"]})
    assert (await shown(cluster, check))[:2] == unbound[:2]
    assert states()["mooring-inventory"] == {"unbound"}
    cluster.plan(Fault("GET", "/validatingadmissionpolicies/", "answer", times=100, code=403))
    status, reason, message, _ = await shown(cluster, check)
    assert (status, reason, "403" in message) == ("Unknown", "NotKnown", True)
    assert states() == {key: {"unknown"} for key in POLICIES}


@own_server_only
async def test_a_condition_that_could_not_be_set_is_set_by_the_next_check(cluster: Cluster, check: PolicyCheck) -> None:
    """Without a pod's name there is none to set."""
    cluster.plan(Fault("PATCH", "/status$", "answer", code=503))
    await check.check()
    assert (await shown(cluster, check))[0] == "False"
    await PolicyCheck(cluster.client, "").check()
