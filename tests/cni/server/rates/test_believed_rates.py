"""Which changed rates a node takes: the last decision, of this pod and node, signed where it has keys."""

import os
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from mooring.annotations.assignment_signature import AssignmentSignature, dump_signature, key_id, signed_bytes
from mooring.annotations.rates import VfRates
from mooring.records.rates_exchange import (
    HANDED_OVER,
    RatesState,
)
from tests.cni.server.rates.pod import NEW, OLD, Pod

KEY, STRANGER = (Ed25519PrivateKey.from_private_bytes(bytes([number] * 32)) for number in (1, 2))


def test_the_last_decision_counts_whatever_arrives_later(pod: Pod) -> None:
    """An older generation, or another text of the same one, changes nothing; a newer one does."""
    server = pod.server()
    pod.hand_over(*NEW, generation=3)
    server.look(0)
    for generation in (2, 3):
        pod.hand_over(*OLD, generation=generation)
        server.look(1)
        assert pod.rates() == NEW
    pod.hand_over(*OLD, generation=4)
    server.look(2)
    assert (pod.rates(), pod.state()) == (OLD, RatesState("ns/p", 4, in_force=True))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"uid": "u2"}, "'u2' is not the assignment's uid 'u1'"),
        ({"node": "n2"}, "'n2' is not the assignment's node 'n1'"),
        ({"rates": (VfRates(1),), "reserved": (1,)}, "1 entries for the 3 VFs of the assignment"),
    ],
)
def test_rates_of_another_pod_or_node_are_not_taken(
    pod: Pod, events: list[Any], changed: dict[str, Any], reason: str
) -> None:
    """The advertiser is not believed: nothing is recorded, and it is said once."""
    server = pod.server()
    pod.hand_over(*NEW, **changed)
    for second in range(3):
        server.look(second)
    assert (pod.steps, pod.state(), pod.rates()) == ([], None, OLD)
    (told,) = [each for each in events if each["event"] == "rates from the advertiser are rejected"]
    assert reason in told["reason"]


@pytest.mark.parametrize("text", ["", "[]", '{"v":1,"rates":7}', '{"v":1,"rates":"{}"}', "x" * 40_000])
def test_what_cannot_be_read_changes_nothing(pod: Pod, text: str) -> None:
    """Nor does a name that is no pod's, nor one that leads out of the folder."""
    server = pod.server()
    for name in ("u1.json", "..json", "a b.json", f"{'u' * 80}.json"):
        pod.leave(text, name)
    server.look(0)
    assert (pod.steps, pod.state(), pod.rates()) == ([], None, OLD)


@pytest.mark.parametrize("kind", ["link to a file", "pipe", "folder is a link"])
def test_no_link_or_pipe_is_followed(pod: Pod, kind: str) -> None:
    """Root's files are not read for the advertiser, and nothing waits for a writer."""
    text = pod.hand_over(*NEW)
    folder = pod.root / "run" / HANDED_OVER
    aside = pod.root / "aside"
    folder.rename(aside)
    if kind == "folder is a link":
        folder.symlink_to(aside)
    else:
        folder.mkdir()
        if kind == "pipe":
            os.mkfifo(folder / "u1.json")
        else:
            (folder / "u1.json").symlink_to(aside / "u1.json")
    server = pod.server()
    server.look(0)
    assert (bool(text), pod.steps, pod.rates()) == (True, [], OLD)


def signed(key: Ed25519PrivateKey, text: bytes) -> str:
    return dump_signature(AssignmentSignature(key_id(key.public_key().public_bytes_raw()), key.sign(text)))


def test_a_node_with_keys_takes_signed_rates_only(pod: Pod, events: list[Any]) -> None:
    """Unsigned, a stranger's, an assignment's signature: none counts; what is taken needs no key any more."""
    keys = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (pod.root / "keys.pem").write_bytes(keys)
    server = pod.server()
    text = pod.hand_over(*NEW).encode()
    prefix = b"mooring.dev/rates-signature v1\0"
    forged = (None, signed(STRANGER, prefix + text), signed(KEY, signed_bytes(text)), signed(KEY, text), "{}")
    for second, signature in enumerate(forged):
        pod.hand_over(*NEW, signature=signature)
        server.look(second)
        assert (pod.steps, pod.rates()) == ([], OLD)
    told = [each["reason"] for each in events if each["event"] == "rates from the advertiser are rejected"]
    assert [reason.partition(": ")[2][:24] for reason in told] == [
        "",
        f"key {key_id(STRANGER.public_key().public_bytes_raw())!r} i"[:24],
        "not the key's signature ",
        "field 'v' is missing",
    ]
    pod.hand_over(*NEW, signature=signed(KEY, prefix + text))
    server.look(9)
    assert pod.rates() == NEW


def test_rates_that_were_not_believed_are_once_the_key_is_there(pod: Pod) -> None:
    """The advertiser writes a file once: it is looked at again after some time."""
    public = STRANGER.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (pod.root / "keys.pem").write_bytes(public)
    server = pod.server()
    text = pod.hand_over(*NEW).encode()
    pod.hand_over(*NEW, signature=signed(KEY, b"mooring.dev/rates-signature v1\0" + text))
    server.look(0)
    more = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (pod.root / "keys.pem").write_bytes(public + more)
    server.look(29)
    assert pod.rates() == OLD
    server.look(31)
    assert pod.rates() == NEW
