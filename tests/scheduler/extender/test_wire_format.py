"""The extender's protocol: what kube-scheduler's requests say, and the forms of the answers."""

import json
from typing import Any

import pytest

from scheduler.extender import wire_format
from scheduler.extender.wire_format import Victims

POD = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": {}}


@pytest.mark.parametrize(("pod", "key"), [("Pod", "NodeNames"), ("pod", "nodenames")])
def test_names_are_answered_by_names(pod: str, key: str) -> None:
    """In the Go fields' spelling and in that before it."""
    asked = wire_format.read_extender_args(json.dumps({pod: POD, "Nodes": None, key: ["a", "b", "c"]}).encode())
    answer = json.loads(wire_format.filtered(asked, wire_format.FailedNodes({"b": "full"}, {"c": "no PF"})))
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
    answer = json.loads(
        wire_format.filtered(wire_format.read_extender_args(body), wire_format.FailedNodes({"b": "full"}, {}))
    )
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
    told = json.loads(wire_format.preempted(asked.victims))
    assert told == {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 2}}}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"Pod": 7}', b'{"Pod": {"metadata": {"name": "p"}}}'])
def test_a_request_outside_the_protocol_is_refused_in_words(body: bytes) -> None:
    """By each of the three readers."""
    for read in (wire_format.read_extender_args, wire_format.read_preemption, wire_format.read_binding):
        with pytest.raises(wire_format.ProtocolError, match=r"request|pod"):
            read(body)
