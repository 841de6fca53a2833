"""GPUs and PFs of a pod's interfaces, chosen together: found if there is a way, and no larger group is broken."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.gpu.inventory import Gpu
from mooring.gpu.request import GpuRequest, Together, Vfs
from mooring.indexes import Indexes
from mooring.inventory import Pf
from scheduler.placement.gpus import OUT_OF_BUDGET, GpuPlacement, Narrowing, beside, place_gpus

Tree = Sequence[str]


def gpu(place: str, number: int, link: int | None = None, numa: int | None = None) -> Gpu:
    """Return a GPU below bridges that a text names from the root, a letter each."""
    return Gpu(f"0000:{number:02x}:00.0", f"GPU-{number}", "nvidia", "H100", 80000, numa, tuple(place), link)


def pf(place: str, name: str) -> Pf:
    pci = f"0001:{len(name):02x}:00.0"
    return Pf(name, pci, "ethernet", "rail0", 100_000, 100_000, True, Indexes.parse("0-7"), pci, pcie=tuple(place))


def anything(_: Narrowing) -> bool:
    return True


def chosen(request: GpuRequest, free: Sequence[Gpu], admitted: Sequence[Sequence[Pf]] = ()) -> list[int] | str:
    """Return the numbers of the GPUs that are taken, or why none are."""
    found = place_gpus(request, free, admitted, anything)
    return found if isinstance(found, str) else [int(one.pci[5:7], 16) for one in found.gpus]


def tree(*groups: str) -> list[Gpu]:
    """Return GPUs numbered through, each below its path; no bridge has two places."""
    return [gpu(path, number) for number, path in enumerate(groups)]


@pytest.mark.parametrize(
    ("free", "count", "expected"),
    [
        # gpugrp1/gpugrp0 of KubeGPU: the small group serves, the large one stays whole.
        (("ax", "ax", "ax", "ax", "by", "by"), 2, [4, 5]),
        (("ax", "ax", "by", "by", "by"), 2, [0, 1]),
        (("ax", "ax", "by", "by", "by"), 3, [2, 3, 4]),
        # Two levels: below one lower switch rather than below two, and an odd one rather than a pair's half.
        (("apx", "apy", "apy", "bqz"), 2, [1, 2]),
        (("apx", "apx", "apy"), 1, [2]),
        # Of equal pairs the one whose loss breaks no group of four.
        (("apx", "apx", "apy", "apy", "bqz", "bqz"), 2, [4, 5]),
        # None holds all: the whole node does.
        (("ax", "ax", "by", "by"), 3, [0, 1, 2]),
        ((), 1, "not enough free GPUs"),
    ],
)
def test_the_tightest_group_that_serves(free: tuple[str, ...], count: int, expected: list[int] | str) -> None:
    """And of equal ones that which breaks the fewest."""
    assert chosen(GpuRequest(count), tree(*free)) == expected


def test_a_tighter_choice_that_leaves_the_vfs_no_way_is_given_up() -> None:
    """KubeGPU filled the best place first and never came back, so that a pod found no place where there was one."""
    free, pfs = tree("ax", "ax", "ax", "by", "by"), (pf("ax", "p0"), pf("by", "full"))
    request = GpuRequest(2, vfs="switch")
    found = place_gpus(request, free, (pfs, pfs), lambda narrowing: {"full"} not in narrowing.values())
    assert isinstance(found, GpuPlacement)
    assert [one.pci[5:7] for one in found.gpus] == ["00", "01"]
    assert found.narrowing == {0: {"p0"}, 1: {"p0"}}


@pytest.mark.parametrize(
    ("together", "expected"),
    [("link", [0, 2]), ("switch", [0, 1]), ("numa", [1, 2])],
)
def test_together_is_held(together: Together, expected: list[int]) -> None:
    """By links, by switch, by NUMA node; GPUs of which that is not known serve nowhere."""
    free = [gpu("ax", 0, 7, 0), gpu("ax", 1, None, 1), gpu("by", 2, 7, 1), gpu("", 3)]
    assert chosen(GpuRequest(2, together=together), free) == expected
    assert "not enough free GPUs" in str(chosen(GpuRequest(3, together=together), free))


def test_model_and_memory_must_suit() -> None:
    """A GPU whose model no source tells suits no pattern."""
    free = [gpu("ax", 0), Gpu("0000:01:00.0", "GPU-1", "amd")]
    assert chosen(GpuRequest(1, model="*H100*"), free) == [0]
    assert chosen(GpuRequest(1, model="A*"), free) == "not enough free GPUs of the requested model or memory"
    assert chosen(GpuRequest(1, memory_mb=80001), free) == "not enough free GPUs of the requested model or memory"


def test_the_nearest_pf_is_that_below_the_lowest_common_bridge() -> None:
    """Not one at a fixed depth; only PFs that the interface admits are compared."""
    near, far, other = pf("acd", "near"), pf("ab", "far"), pf("z", "other")
    assert beside(gpu("acd", 0), (near, far, other)) == {"near"}
    assert beside(gpu("acd", 0), (far, other)) == {"far"}
    assert beside(gpu("ae", 0), (near, far)) == {"near", "far"}
    assert beside(gpu("q", 0), (near, far, other)) == frozenset()


def test_gpus_that_no_admitted_pf_is_near_are_not_taken() -> None:
    """And the reason says so, without asking for VFs that could not help."""
    free, elsewhere = tree("ax", "by"), pf("c", "p0")
    request = GpuRequest(1, vfs="switch")
    expected = "no free GPUs that share a bridge with the PFs of the pod's interfaces"
    assert place_gpus(request, free, ((elsewhere,),), lambda _: pytest.fail("was asked")) == expected
    assert chosen(request, free, ((elsewhere, pf("by", "p1")),)) == [1]


def test_interfaces_and_gpus_that_are_more_are_free() -> None:
    """Interface k lies beside GPU k as far as there are both."""
    free, pfs = tree("ax", "by"), (pf("ax", "p0"), pf("by", "p1"))
    more_gpus = place_gpus(GpuRequest(2, vfs="switch"), free, (pfs,), anything)
    more_interfaces = place_gpus(GpuRequest(1, vfs="switch"), free[:1], (pfs, pfs), anything)
    assert isinstance(more_gpus, GpuPlacement)
    assert isinstance(more_interfaces, GpuPlacement)
    assert more_gpus.narrowing == more_interfaces.narrowing == {0: {"p0"}}


def test_running_out_of_steps_is_told() -> None:
    """And is no answer that there is no way."""
    free = tree(*["ax"] * 8)
    assert place_gpus(GpuRequest(4), free, (), lambda _: False, budget=69) == OUT_OF_BUDGET
    assert place_gpus(GpuRequest(4), free, (), lambda _: False, budget=70) == "free GPUs and VFs do not fit together"


PATHS = ("apx", "apy", "aq", "bv", "bw", "c")
_path = st.sampled_from(PATHS)
_free = st.lists(st.tuples(_path, st.sampled_from([None, 0, 1]), st.sampled_from([None, 0, 1])), max_size=6)
_vfs: Sequence[Vfs | None] = (None, "switch")
_together: Sequence[Together | None] = (None, "link", "switch", "numa")


@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 4),
    st.sampled_from(_together),
    st.sampled_from(_vfs),
    _free,
    st.lists(st.tuples(_path, st.integers(0, 2)), max_size=3),
    st.lists(st.integers(0, 7), max_size=4),
)
def test_a_way_is_found_exactly_if_there_is_one(
    count: int,
    together: Together | None,
    vfs: Vfs | None,
    placed: list[tuple[str, int | None, int | None]],
    nics: list[tuple[str, int]],
    selectors: list[int],
) -> None:
    """Compared with trying every choice of GPUs, and for each every way to give its interfaces VFs."""
    free = [gpu(path, number, link, numa) for number, (path, link, numa) in enumerate(placed)]
    pfs = [pf(path, f"p{number}") for number, (path, _) in enumerate(nics)]
    left = {one.name: vf_count for one, (_, vf_count) in zip(pfs, nics, strict=True)}
    admitted = [[one for number, one in enumerate(pfs) if mask >> number & 1] for mask in selectors]
    request = GpuRequest(count, together=together, vfs=vfs)

    def fits(narrowing: Narrowing) -> bool:
        names = [
            [one.name for one in some if one.name in narrowing.get(k, {one.name})] for k, some in enumerate(admitted)
        ]
        return any(all(way.count(name) <= left[name] for name in way) for way in itertools.product(*names))

    found = place_gpus(request, free, admitted, fits)
    assert isinstance(found, GpuPlacement) == any(
        _is_way(request, choice, admitted, left) for choice in itertools.combinations(free, count)
    )
    if isinstance(found, GpuPlacement):
        assert _is_way(request, found.gpus, admitted, left)
        assert list(found.gpus) == sorted(found.gpus, key=lambda one: one.pci)


def _is_way(request: GpuRequest, choice: Sequence[Gpu], admitted: Sequence[Sequence[Pf]], left: dict[str, int]) -> bool:
    """Return whether the request's own words hold of a choice, and some way to give the interfaces VFs with it."""
    if request.together == "link" and (choice[0].link is None or len({one.link for one in choice}) > 1):
        return False
    if request.together == "numa" and (choice[0].numa is None or len({one.numa for one in choice}) > 1):
        return False
    if request.together == "switch" and len({one.pcie[:1] for one in choice}) > 1:
        return False
    return any(
        all(way.count(one) <= left[one.name] for one in way) and _near(request, choice, way, admitted)
        for way in itertools.product(*admitted)
    )


def _near(request: GpuRequest, choice: Sequence[Gpu], way: Sequence[Pf], admitted: Sequence[Sequence[Pf]]) -> bool:
    if request.vfs is None:
        return True
    return all(
        _shared(one, mine) == max(_shared(one, other) for other in some) > 0
        for one, mine, some in zip(choice, way, admitted, strict=False)
    )


def _shared(one: Gpu, nic: Pf) -> int:
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one.pcie, nic.pcie, strict=False))))
