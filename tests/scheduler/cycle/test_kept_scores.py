"""Which shapes of pods are kept: the most recently used ones."""

from collections.abc import Callable

import pytest

from scheduler.cycle import kept_scores
from scheduler.cycle.kept_scores import KeptSignatureScores
from scheduler.cycle.placement_budget import PlacementBudget
from scheduler.cycle.signature_scores import SignatureScores
from scheduler.kube.pod_info import PodInfo, read_pod_info
from tests.scheduler.group_life import Life

Uses = Callable[[int, str], int]


@pytest.fixture
def kept(life: Life, monkeypatch: pytest.MonkeyPatch) -> KeptSignatureScores:
    """Return scores with room for 40 shapes."""
    life.nodes("n1")
    monkeypatch.setattr(kept_scores, "_MOST_BYTES", 40 * 1000)
    monkeypatch.setattr(kept_scores, "_A_CHARACTER", 0)
    monkeypatch.setattr(SignatureScores, "byte_count", 1000)
    return KeptSignatureScores(life.machine.cache.nodes)


@pytest.fixture
def use(kept: KeptSignatureScores, life: Life) -> Uses:
    """Return a function that uses a shape, by its number, for a pod; it returns which scores it got."""
    scores: list[object] = []

    def use(shape: int, pod: str) -> int:
        requests = {"requests": {"cpu": f"{1000 + shape}m"}}
        spec = {"containers": [{"name": "c", "resources": requests}]}
        info = read_pod_info(life.make_pod(pod, metadata={"uid": f"uid of {pod}"}, spec=spec))
        assert isinstance(info, PodInfo)
        found = kept.of(info, PlacementBudget())
        if found not in scores:
            scores.append(found)
        return scores.index(found)

    return use


def test_shapes_that_come_in_turns_are_kept(use: Uses) -> None:
    first, *others = [[use(shape, f"p{turn}-{shape}") for shape in range(40)] for turn in range(3)]
    assert others == [first, first]


def test_the_shape_whose_last_use_is_longest_ago_is_displaced(use: Uses) -> None:
    shared = use(100, "replica0")
    first = use(0, "p0")
    for shape in range(1, 39):
        use(shape, f"p{shape}")
    assert use(100, "replica1") == shared
    use(40, "p40")
    assert use(100, "replica2") == shared
    assert use(0, "p0") != first


def test_a_shape_goes_a_minute_after_its_last_use(kept: KeptSignatureScores, use: Uses) -> None:
    before = use(1, "a"), use(2, "b"), use(2, "c")
    kept.tick(59.0)
    assert (use(1, "a"), use(2, "c")) == (before[0], before[2])
    kept.tick(120.0)
    assert use(1, "a") not in before
    assert use(2, "c") not in before


def test_large_shapes_displace_more_of_the_others(
    kept: KeptSignatureScores, use: Uses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are kept by bytes; the shape that is in use stays, however large it is."""
    first = use(0, "a")
    monkeypatch.setattr(SignatureScores, "byte_count", 39_500)
    assert use(0, "b") == first
    large = use(1, "c")
    assert use(0, "d") != first
    monkeypatch.setattr(SignatureScores, "byte_count", 50_000)
    assert use(1, "e") != large
    assert use(1, "f") == use(1, "g")
