"""A pod's request for GPUs: limits and annotation, which must say the same, and what each container gets."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.errors import AnnotationError
from mooring.gpu.request import ContainerLimit, GpuRequest, Role, containers_units, gpu_count, read_gpu_request

FOUR = (ContainerLimit("main", 3), ContainerLimit("log", 0), ContainerLimit("eval", 1))
ASKING = (FOUR[0], FOUR[2])


def test_limits_alone_are_a_request() -> None:
    """And no limits without an annotation are none."""
    assert read_gpu_request(None, FOUR) == GpuRequest(4, limits=ASKING)
    assert read_gpu_request(None, ()) is None
    assert read_gpu_request(None, (ContainerLimit("main", 0),)) is None


def test_the_annotation_says_which_gpus() -> None:
    """Every field, and none: the count is the limits' sum either way."""
    text = '{"count":4,"model":"*H100*","memory_mb":80000,"together":"link","vfs":"switch"}'
    expected = GpuRequest(4, "*H100*", 80000, "link", "switch", ASKING)
    assert read_gpu_request(text, FOUR, interfaces=1) == expected
    assert read_gpu_request("{}", FOUR) == GpuRequest(4, limits=ASKING)


@pytest.mark.parametrize(
    ("document", "limits", "rule"),
    [
        ({"count": 4}, (), ": no container has a limit of 'mooring.dev/gpu'"),
        ({"count": 5}, FOUR, ".count: the containers' limits of 'mooring.dev/gpu' add up to 4, not 5"),
        ({"count": 0}, FOUR, ".count: 0 is not an integer from 1 to 64"),
        ({"together": "rack"}, FOUR, ".together: 'rack' is not one of link, switch, numa"),
        ({"vfs": "numa"}, FOUR, ".vfs: 'numa' is not one of switch"),
        ({"vfs": "switch"}, FOUR, ".vfs: the pod requests no VFs"),
        ({"modell": "x"}, FOUR, ".modell: unknown field"),
        ({"memory_mb": "80G"}, FOUR, ".memory_mb: '80G' is not an integer"),
        ({}, (ContainerLimit("main", 65),), "add up to 65, more than 64"),
        ([{"beside": 0}], FOUR, ": a list of 1 is not an object"),
        ({"model": "x" * 20_000}, FOUR, "longer than 16384 characters"),
    ],
)
def test_what_is_refused_is_named(document: object, limits: tuple[ContainerLimit, ...], rule: str) -> None:
    """By the annotation, the field and the rule."""
    with pytest.raises(AnnotationError) as refused:
        read_gpu_request(json.dumps(document), limits)
    assert str(refused.value).startswith("annotation 'mooring.dev/request.gpu'")
    assert rule in str(refused.value)


def test_limits_beyond_what_a_node_has_are_refused_without_an_annotation_too() -> None:
    """A bound on what is derived from one pod."""
    with pytest.raises(AnnotationError, match="add up to 65, more than 64"):
        read_gpu_request(None, (ContainerLimit("a", 32), ContainerLimit("b", 33)))


UNITS = ("a", "b", "c", "d", "e")


def test_init_containers_share_what_the_others_get_later() -> None:
    """Beside the sidecars before them, whose units nobody else has."""
    limits = (
        ContainerLimit("first", 5, "init"),
        ContainerLimit("side", 1, "sidecar"),
        ContainerLimit("second", 2, "init"),
        ContainerLimit("main", 2),
        ContainerLimit("other", 1),
    )
    assert gpu_count(limits) == 5
    assert containers_units(limits, UNITS) == {
        "first": UNITS,
        "side": ("a",),
        "second": ("b", "c"),
        "main": ("b", "c"),
        "other": ("d",),
    }


ROLES: tuple[Role, ...] = ("init", "sidecar", "main")
_early = st.lists(st.tuples(st.sampled_from(ROLES[:2]), st.integers(0, 4)), max_size=5)
_limits = st.tuples(_early, st.lists(st.tuples(st.just(ROLES[2]), st.integers(0, 4)), max_size=4))


@given(_limits)
def test_nobody_has_anothers_unit_while_both_run(
    found: tuple[list[tuple[Role, int]], list[tuple[Role, int]]],
) -> None:
    """Everyone gets as many as it limits; playing the pod's life takes as many units as are counted."""
    limits = tuple(
        ContainerLimit(f"c{number}", count, role) for number, (role, count) in enumerate([*found[0], *found[1]])
    )
    units = [f"u{number}" for number in range(gpu_count(limits))]
    given = containers_units(limits, units)
    running: list[str] = []
    most = 0
    for limit in limits:
        assert len(given[limit.name]) == limit.count
        at_once = [*running, *given[limit.name]]
        assert len(at_once) == len(set(at_once))
        most = max(most, len(at_once))
        if limit.role != "init":
            running = at_once
    assert most == len(units)
