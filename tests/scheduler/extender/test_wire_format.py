"""The extender's protocol: what kube-scheduler's requests say, and the forms of the answers."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from scheduler.extender import wire_format
from scheduler.extender.wire_format import Victims
from tests.support.seeds import Part

POD = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": {}}


@pytest.mark.parametrize(("pod", "key"), [("Pod", "NodeNames"), ("pod", "nodenames")])
def test_names_are_answered_by_names(pod: str, key: str) -> None:
    """In the Go fields' spelling and in that before it."""
    asked = wire_format.read_extender_args(json.dumps({pod: POD, "Nodes": None, key: ["a", "b", "c"]}).encode())
    answer = json.loads(wire_format.filter_result(asked, {"b": "full"}, {"c": "no PF"}))
    assert answer == {
        "Nodes": None,
        "NodeNames": ["a"],
        "FailedNodes": {"b": "full"},
        "FailedAndUnresolvableNodes": {"c": "no PF"},
        "Error": "",
    }


def test_nodes_sent_whole_are_answered_whole_and_unchanged() -> None:
    """Including fields that Mooring does not know."""
    nodes = [{"metadata": {"name": name}, "spec": {"strange": [1.5, None]}} for name in ("a", "b")]
    body = json.dumps({"Pod": POD, "Nodes": {"metadata": {}, "items": nodes}, "NodeNames": None}).encode()
    answer = json.loads(wire_format.filter_result(wire_format.read_extender_args(body), {"b": "full"}, {}))
    assert (answer["Nodes"], answer["NodeNames"]) == ({"items": nodes[:1]}, None)


@pytest.mark.parametrize(
    "victims",
    [
        {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 2}}},
        {"NodeNameToVictims": {"n1": {"Pods": [{"metadata": {"name": "p", "uid": "v"}}], "NumPDBViolations": 2}}},
        {"nodeToVictims": {"n1": {"pods": [{"metadata": {"name": "p", "uid": "v"}}], "numPDBViolations": 2}}},
    ],
)
def test_victims_are_read_in_each_form_and_answered_by_uid(victims: dict[str, Any]) -> None:
    """kube-scheduler takes the answer in one form only."""
    asked = wire_format.read_preemption(json.dumps({"Pod": POD} | victims).encode())
    assert asked.victims == {"n1": Victims(("v",), 2)}
    told = json.loads(wire_format.preemption_result(asked.victims))
    assert told == {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 2}}}


READERS = (wire_format.read_extender_args, wire_format.read_preemption, wire_format.read_binding)
UID = b'{"metadata":{"name":"p","namespace":"d","uid":"u"}}'
HOSTILE = {
    "nothing": b"",
    "half an object": b"{",
    "a list": b"[]",
    "no pod": b"{}",
    "a number as pod": b'{"Pod": 7}',
    "a pod without uid": b'{"Pod": {"metadata": {"name": "p"}}}',
    "deep": b"[" * 1_000_000,
    "a deep field": b'{"pod":' + b"[" * 100_000,
    "deep objects": b'{"pod":' + b'{"a":' * 100_000,
    "a deep node": b'{"pod":' + UID + b',"nodes":{"items":[' + b'{"a":' * 100_000,
    "deep victims": b'{"pod":' + UID + b',"nodeToVictims":{"n":{"pods":[' + b"[" * 100_000,
    "digits": b'{"pod":{"metadata":{"uid":' + b"9" * 100_000 + b"}}}",
    "a large exponent": b'{"pod":1e999999999}',
    "not a number": b'{"pod":NaN}',
    "infinity": b'{"pod":' + UID + b',"nodeToVictims":{"n":{"numPDBViolations":-Infinity}}}',
    "a key that is not UTF-8": b'{"\xff":1}',
    "a uid that is not UTF-8": b'{"pod":{"metadata":{"name":"p","uid":"\xff"}},"podUID":"\xff"}',
    "half a character": rb'{"pod":{"metadata":{"name":"p","uid":"\ud800"}},"podUID":"\ud800"}',
    "UTF-16": '{"pod":{}}'.encode("utf-16"),
    "two documents": b"{}{}",
}


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("shape", HOSTILE)
def test_a_hostile_body_is_outside_the_protocol(read: Callable[[bytes], object], shape: str) -> None:
    """The HTTP server answers a ProtocolError with 200 and an error, or with 400; any other error would be a 500."""
    with pytest.raises(wire_format.ProtocolError, match=r"request is not an|request has no pod|uid is missing"):
        read(HOSTILE[shape])


SIGNS = (b"{", b"}", b"[", b"]", b":", b",", b'"', b"\0")
PARTS = (*SIGNS, b"null", b"-1", b"1e9", b'"\xff"', rb'"\ud800"', b"[" * 2000, b'"a"')


def test_any_bytes_are_a_request_or_outside_the_protocol(part: Part) -> None:
    """A valid body with passages cut, repeated and replaced; with ``--long`` 50,000 of them."""
    random = part.random("extender")
    whole = {"Pod": POD, "NodeNames": ["a"], "Nodes": {"items": [POD]}, "PodUID": "u", "Node": "n", "podName": "p"}
    whole |= {"podNamespace": "d", "NodeNameToVictims": {"n": {"Pods": [POD], "NumPDBViolations": 2}}}
    for _ in range(50_000 if part.whole else 2_000):
        body = json.dumps(whole).encode()
        for _ in range(random.randint(1, 3)):
            begin, length = random.randrange(len(body)), random.choice((0, 1, 5, 40))
            body = body[:begin] + random.choice(PARTS) * random.randint(0, 2) + body[begin + length :]
        for read in READERS:
            try:
                read(body)
            except wire_format.ProtocolError:
                continue
            except Exception as wrong:
                raise AssertionError(repr(body)) from wrong


@pytest.mark.parametrize("name", ["", "a/b", "..", ".", "a?b", "a b", "x" * 254])
def test_a_binding_names_a_pod(name: str) -> None:
    """Its parts become parts of a path, where ".." is the step to the Namespace object."""
    binding = {"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "n1"}
    assert wire_format.read_binding(json.dumps(binding).encode()) == wire_format.Binding("default", "p", "u", "n1")
    with pytest.raises(wire_format.ProtocolError, match="is not a name"):
        wire_format.read_binding(json.dumps(binding | {"PodName": name}).encode())
