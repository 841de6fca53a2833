"""A faulty constraint affects only the pods that request it: it raises, answers nonsense, cannot be loaded."""

import asyncio
import re
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from scheduler.constraints.kinds import Fault, Kind, Kinds
from scheduler.constraints.protocol import NodeSide, Proposal, Units, Unmet
from scheduler.cycle.decisions import Bind
from scheduler.cycle.instructions import Notice
from scheduler.server.startup import GROUP, load_kinds
from tests.scheduler.constraints.conftest import StartLife
from tests.scheduler.constraints.life import BOXES, Boxes, units_of
from tests.scheduler.group_life import as_bound

LEFT: Units[str] = Units((("a", ""), ("b", "")), 2)


def _raising(raised: BaseException) -> Callable[..., Any]:
    def behave(*_: object) -> Any:
        raise raised

    return behave


_raise, _exit = _raising(KeyError("v")), _raising(SystemExit(0))


class _Ajar(frozenset[str]):
    def __contains__(self, _: object) -> bool:
        raise RuntimeError("not a set")


class _Map(dict[str, Any]):
    def get(self, *_: object) -> Any:
        raise RuntimeError("not a mapping")


def _faulty(method: str, behaviour: Callable[..., Any]) -> Kinds:
    broken = type("Broken", (Boxes,), {method: lambda _, *arguments: behaviour(*arguments)})
    return Kinds([Kind("box", broken())])


def test_a_kind_shows_no_results_that_it_keeps() -> None:
    """There are up to 131,072, and a failed assertion or a log line shows the kind."""
    kind = Kind("box", Boxes())
    text = repr(kind)
    assert kind.judge(1, LEFT) == 50
    assert repr(kind) == text


@pytest.mark.parametrize("method", ["read_request", "judge", "place"])
@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (_raise, "KeyError"),
        (_exit, "SystemExit"),
        (lambda *_: [5], "TypeError"),
        (_raising(KeyboardInterrupt()), "KeyboardInterrupt"),
        (_raising(asyncio.CancelledError()), "CancelledError"),
    ],
)
def test_a_failed_constraint_is_named_to_its_own_pods_and_others_go_on(
    method: str,
    behaviour: Callable[..., Any],
    words: str,
    start_life: StartLife,
) -> None:
    """Whatever it does wrong, wherever: its pods wait, with its name in the reason; the next pod is bound."""
    life = start_life(_faulty(method, behaviour))
    life.show_node(box="a b")
    told = life.outcome(life.asking(box="1"))
    assert isinstance(told, str)
    assert "constraint 'box' failed in " + method in told
    assert words in told
    assert isinstance(life.outcome(life.make_pod()), Bind)
    (notice,) = [one for one in life.machine.tick(life.now) if isinstance(one, Notice)]
    assert (notice.subject, notice.fields["constraint"]) == ("constraint", "box")
    assert life.machine.tick(life.now) == []


@pytest.mark.parametrize(
    "behaviour",
    [_raise, _exit, _raising(asyncio.CancelledError()), lambda _: 5, lambda _: {"a": []}, lambda _: {1: ""}],
)
def test_a_node_whose_inventory_breaks_the_constraint_is_left_out_alone(
    behaviour: Callable[..., Any], start_life: StartLife
) -> None:
    """The other nodes are read and used; the log names node and constraint."""

    def picky(node: NodeSide) -> Any:
        return behaviour(node) if node.text == "bad" else dict.fromkeys(node.text.split(), "")

    life = start_life(_faulty("read_inventory", picky))
    (notice,) = life.show_node("bad", box="bad")
    assert isinstance(notice, Notice)
    assert (notice.fields["node"], notice.fields["constraint"]) == ("bad", "box")
    assert "1 constraint 'box' failed on the node(s)" in str(life.outcome(life.asking(box="1")))
    life.show_node("good", box="a b")
    bind = life.decide()
    assert isinstance(bind, Bind)
    assert bind.assigned.node == "good"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Proposal(("c",)), "unit 'c' is not free"),
        (Proposal(("a", "a")), "twice"),
        (Proposal(("a",), {"x": float("nan")}), "not a JSON number"),
        (Proposal(("a",), {"x": {1, 2}}), "not JSON serializable"),
        (Proposal(("a",), {"x": "\ud800"}), "not valid Unicode"),
        (Proposal(("a",), {"units": []}), "contain the field 'units'"),
        (Proposal(("a",), narrows={"vfs": {0: ["pf0"]}}), "narrowing"),  # type: ignore[dict-item]
        (Proposal(("a",), None), "NoneType"),  # type: ignore[arg-type]
        (Proposal(("a",), narrows={"vfs": {0: _Ajar()}}), "narrowing"),
        ("a", "'a' is not a proposal"),
    ],
)
def test_an_invalid_proposal_is_refused(answer: object, words: str) -> None:
    """A constraint cannot give what is not free, nor write what no reader could parse."""
    (kind,) = _faulty("place", lambda *_: [answer])
    with pytest.raises(Fault, match=words):
        list(kind.proposals(1, LEFT, {}))


def test_what_a_proposal_narrows_is_read_once() -> None:
    """A mapping is code too: only plain values of it are kept."""
    (kind,) = _faulty("place", lambda *_: [Proposal(("a",), narrows=_Map(vfs={0: frozenset({"pf0"})}))])
    (proposal,) = kind.proposals(1, LEFT, {})
    assert proposal.narrows.get("vfs") == {0: frozenset({"pf0"})}


@pytest.mark.parametrize("score", [101, -1, 0.5, True, "", None])
def test_a_judgement_is_an_integer_or_words(score: object) -> None:
    """Anything else is a fault, which is a reason against the node."""
    (kind,) = _faulty("judge", lambda *_: score)
    assert "is neither an integer from 0 to 100 nor a text" in str(kind.judge(1, LEFT))


@pytest.mark.parametrize("method", ["read_request", "judge", "place"])
def test_a_message_with_invalid_unicode_is_shown_as_far_as_it_is_valid(method: str, start_life: StartLife) -> None:
    """A lone surrogate or a very long text would prevent the pod's condition from being written."""
    said = "\ud800" + "x" * 10_000

    def say(*_: object) -> Any:
        if method == "judge":
            return said
        raise ValueError(said) if method == "read_request" else Unmet(said)

    life = start_life(_faulty(method, say))
    life.show_node(box="a b")
    told = life.outcome(life.asking(box="1"))
    assert isinstance(told, str)
    assert "?xxx" in told
    assert len(told.encode()) < 400


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("no.such.module:Thing", "could not be loaded.*ModuleNotFoundError"),
        ("json:no_such_thing", "could not be loaded.*AttributeError"),
        ("json:dumps", "could not be loaded.*TypeError"),
        ("builtins:object", "could not be loaded.*no method 'read_request'"),
        # No such kind is installed.
        ("", "^annotation 'mooring.dev/request.box': no constraint 'box' is installed in this scheduler$"),
    ],
)
def test_a_pod_that_requests_a_kind_that_is_not_loaded_waits_with_the_reason(
    value: str, words: str, start_life: StartLife
) -> None:
    """It is not bound without the units, and no other pod is affected."""
    life = start_life(load_kinds([EntryPoint("box", value, GROUP)] if value else []))
    life.show_node(box="a b")
    told = str(life.outcome(life.asking(box="1")))
    assert re.search(words, told)
    assert "constraint 'box'" in told
    assert isinstance(life.outcome(life.make_pod()), Bind)


@pytest.mark.parametrize("name", ["vfs", "Box", "a/b", "a" * 33])
def test_a_kinds_name_must_be_valid_in_annotation_keys(name: str) -> None:
    assert list(load_kinds([EntryPoint(name, "json:dumps", GROUP)])) == []


def test_units_stay_taken_while_their_constraint_is_broken(start_life: StartLife) -> None:
    """The scheduler itself reads the claims: when the constraint works again, nothing is given twice."""
    before = start_life(BOXES)
    before.show_node(box="a b")
    pod = before.asking(box="1")
    life = start_life(_faulty("read_inventory", lambda node: _raise() if node.text == "bad" else {"a": "", "b": ""}))
    life.show_node(box="bad")
    bind = before.outcome(pod)
    assert isinstance(bind, Bind)
    life.see(as_bound(bind))
    assert isinstance(life.outcome(before.asking(box="1")), str)
    life.show_node(box="a b")
    assert units_of(life.decide(), "box") == ["b"]
