"""Which shapes of pods are kept: all that several pods have, and few of pods that all differ."""

from collections.abc import Callable

import pytest

from mooring.kube.events import Changed, Identity
from scheduler.cycle import kept_scores
from scheduler.cycle.kept_scores import KeptSignatureScores
from scheduler.cycle.placement_budget import PlacementBudget
from scheduler.cycle.signature_scores import rows_kept
from scheduler.kube.objects import Node, Pod
from scheduler.kube.pod_info import PodInfo, read_pod_info
from scheduler.state.machine import Machine

MakeNode = Callable[..., Node]
Uses = Callable[[int, str], int]


@pytest.fixture
def kept(machine: Machine, make_node: MakeNode, monkeypatch: pytest.MonkeyPatch) -> KeptSignatureScores:
    """Room for 10 shapes of one pod each, and for 40 of several."""
    machine.nodes(Changed(Identity("n1"), make_node("n1")), 0.0)
    rows = rows_kept(machine.cache.nodes)
    monkeypatch.setattr(kept_scores, "_MAX_SINGLE_POD_ROWS", 10 * rows)
    monkeypatch.setattr(kept_scores, "_MAX_SHARED_ROWS", 40 * rows)
    return KeptSignatureScores(machine.cache.nodes)


@pytest.fixture
def use(kept: KeptSignatureScores, make_pod: Callable[..., Pod]) -> Uses:
    """Return a function that uses a shape, by its number, for a pod; it returns which scores it got."""
    scores: list[object] = []

    def use(shape: int, pod: str) -> int:
        requests = {"requests": {"cpu": f"{1000 + shape}m"}}
        made = make_pod(pod, spec={"containers": [{"name": "c", "resources": requests}]})
        made.metadata.uid = f"uid of {pod}"
        info = read_pod_info(made)
        assert isinstance(info, PodInfo)
        found = kept.of(info, PlacementBudget())
        if not any(found is one for one in scores):
            scores.append(found)
        return next(at for at, one in enumerate(scores) if found is one)

    return use


def test_shapes_that_come_in_turns_are_kept_although_more_than_fit_in_the_short_list(use: Uses) -> None:
    """30 templates, pods of each in turn: most are judged again for their second pod, and all are kept from then on."""
    turns = [[use(shape, f"p{turn}-{shape}") for shape in range(30)] for turn in range(4)]
    assert turns[1] == turns[2] == turns[3]


def test_pods_that_all_differ_have_no_more_than_the_short_list(use: Uses) -> None:
    """Also where each is decided about several times: a shape that one pod has is not worth the memory."""
    first = [use(shape, f"p{shape}") for shape in range(30)]
    again = [use(shape, f"p{shape}") for shape in range(20, 30)]
    assert again == first[20:]
    assert use(0, "p0") not in first


def test_pods_that_all_differ_do_not_displace_a_shape_that_several_have(use: Uses) -> None:
    shared = [use(100, f"replica{number}") for number in range(3)]
    assert len(set(shared)) == 1
    for shape in range(30):
        use(shape, f"p{shape}")
    assert use(100, "replica4") == shared[0]


def test_a_shape_goes_a_minute_after_its_last_use(kept: KeptSignatureScores, use: Uses) -> None:
    """Of one pod or of several: the memory is given back."""
    before = use(1, "a"), use(2, "b"), use(2, "c")
    kept.tick(59.0)
    assert (use(1, "a"), use(2, "c")) == (before[0], before[2])
    kept.tick(120.0)
    assert use(1, "a") not in before
    assert use(2, "c") not in before
