"""GPUs and PFs of a pod's interfaces, chosen together: found if there is a way, and no larger group is broken."""

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.annotations.inventory import Pf
from mooring.annotations.request import PodRequest, VfRequest
from mooring.gpu.inventory import Gpu
from mooring.gpu.request import ContainerLimit, GpuRequest, Together, Vfs
from mooring.nic.settings import VfSettings
from scheduler.constraints.kinds import Wish
from scheduler.constraints.protocol import VFS, Proposal, Units, Unmet
from scheduler.kube.outcomes import Refused
from scheduler.placement.assign import OUT_OF_BUDGET, Placement
from scheduler.placement.gpus import LOOKS, choices, gpu_kind
from scheduler.placement.joint import KindPart, VfPart, place_kinds
from scheduler.placement.place import PfCapacity
from scheduler.placement.steps import Steps
from scheduler.placement.vf_accounting import FreeVfs
from tests.scheduler.decisions import documents


def gpu(place: Sequence[str], number: int, link: int | None = None, numa: int | None = None) -> Gpu:
    """Return a GPU below bridges that a text names from the root, a letter each."""
    return Gpu(f"0000:{number:02x}:00.0", f"GPU-{number}", "nvidia", "H100", 80000, numa, tuple(place), link)


def pf(place: str, name: str) -> Pf:
    return documents.pf(0, 8, name=name, offer_mbps=100_000, pcie=tuple(place))


def vfs_of(pfs: Sequence[tuple[Pf, int]]) -> FreeVfs:
    return FreeVfs(
        tuple(one for one, _ in pfs),
        tuple((1 << count) - 1 for _, count in pfs),
        tuple(PfCapacity(count, one.offer_mbps) for one, count in pfs),
    )


def placed(
    request: GpuRequest, free: Sequence[Gpu], vfs: PodRequest | None = None, pfs: Sequence[tuple[Pf, int]] = ()
) -> Placement | str:
    """Place GPUs, and VFs beside them, in the search that the scheduler uses."""
    left = Units(tuple((one.pci, one) for one in free), len(free))
    free_vfs = vfs_of(pfs)
    parts = [KindPart(Wish(gpu_kind(), request), left, vfs, free_vfs.pfs)]
    placement = place_kinds([*parts, *([VfPart(vfs, free_vfs)] if vfs else [])], free_vfs, steps=Steps())
    return placement.reason if isinstance(placement, Refused) else placement


def gpus_of(found: Placement | str) -> list[int] | str:
    """Return the numbers of the GPUs that are taken, or why none are."""
    if isinstance(found, str):
        return found
    ((_, proposal),) = found.others
    return [int(pci[5:7], 16) for pci in proposal.units]


def tree(*groups: str) -> list[Gpu]:
    """Return GPUs numbered through, each below its path; no bridge has two places."""
    return [gpu(path, number) for number, path in enumerate(groups)]


SOME = [gpu("ax", 0, 7, 0), gpu("ax", 1, None, 1), gpu("by", 2, 7, 1), Gpu("0000:03:00.0", "GPU-3", "amd")]
UNFIT = "not enough free GPUs of the requested model or memory"


@pytest.mark.parametrize(
    ("free", "request_", "expected"),
    [
        ([], GpuRequest(1), "not enough free GPUs"),
        # A GPU of which links, switch or NUMA node are not known suits no such request.
        (SOME, GpuRequest(3, together="link"), "not enough free GPUs that are linked with each other"),
        (SOME, GpuRequest(3, together="switch"), "not enough free GPUs under one PCIe switch"),
        (SOME, GpuRequest(3, together="numa"), "not enough free GPUs on one NUMA node"),
        (SOME, GpuRequest(3, model="*H100*"), [0, 1, 2]),
        (SOME, GpuRequest(4, model="*H100*"), UNFIT),
        (SOME, GpuRequest(1, model="A*"), UNFIT),
        (SOME, GpuRequest(1, memory_mb=80001), UNFIT),
    ],
)
def test_gpus_are_as_requested(free: list[Gpu], request_: GpuRequest, expected: list[int] | str) -> None:
    assert gpus_of(placed(request_, free)) == expected


BESIDE = GpuRequest(1, vfs="switch", limits=(ContainerLimit("c", 1),))
AX, AY, BY, C = pf("ax", "p0"), pf("ay", "p1"), pf("by", "p1"), pf("c", "p0")
AXU, AXV = pf("axu", "p0"), replace(pf("axv", "p1"), network="rail1")
TWO, ANY, SLOW = GpuRequest(2, vfs="switch"), VfRequest(), VfRequest(VfSettings(min_tx_rate=1000))
FAST, RAIL1 = VfRequest(VfSettings(min_tx_rate=60_000)), VfRequest(network="rail1")
FAR = "no free GPUs that share a bridge with the PFs of the pod's interfaces"
BESIDE_FULL = "free gpu, vfs do not fit together"


@pytest.mark.parametrize(
    ("request_", "free", "interfaces", "pfs", "expected"),
    [
        # The nearest PF that has the VFs and not the bandwidth leaves its GPUs to others.
        (TWO, ("ax", "by", "by"), (FAST, FAST), ((AX, 4), (BY, 4)), ([0, 1], (0, 1))),
        # A PF that is down or full is the nearest all the same: GPUs beside a farther one would have half their use.
        (BESIDE, ("ax",), (SLOW,), ((replace(AX, up=False), 4), (AY, 4)), BESIDE_FULL),
        (BESIDE, ("ax",), (SLOW,), ((AX, 0), (AY, 4)), BESIDE_FULL),
        (BESIDE, ("ax",), (SLOW,), ((AX, 1), (AY, 4)), ([0], (0,))),
        # The PF of another network beside the GPU does not count.
        (BESIDE, ("axu",), (RAIL1,), ((AXU, 4), (AXV, 4)), ([0], (1,))),
        (BESIDE, ("ax",), (RAIL1,), ((AX, 4),), "node(s) had no PF on network 'rail1'"),
        # GPUs that no selected PF is near are not taken.
        (BESIDE, ("ax", "by"), (ANY,), ((C, 4),), FAR),
        (BESIDE, ("ax", "by"), (ANY,), ((C, 4), (BY, 1)), ([1], (1,))),
    ],
)
def test_gpus_and_vfs_are_found_in_one_search(
    request_: GpuRequest,
    free: Sequence[str],
    interfaces: tuple[VfRequest, ...],
    pfs: Sequence[tuple[Pf, int]],
    expected: tuple[list[int], tuple[int, ...]] | str,
) -> None:
    found = placed(request_, tree(*free), PodRequest(interfaces), pfs)
    assert (found if isinstance(found, str) else (gpus_of(found), found.pfs)) == expected


def test_interfaces_and_gpus_that_are_more_are_free() -> None:
    """Interface k lies beside GPU k as far as there are both, and the assignment says which."""
    free, pfs = tree("ax", "by"), [(AX, 4), (BY, 4)]
    request = GpuRequest(2, vfs="switch", limits=(ContainerLimit("c", 2),))
    more_gpus = placed(request, free, PodRequest((ANY,)), pfs)
    more_interfaces = placed(BESIDE, free[:1], PodRequest((ANY, ANY)), pfs)
    assert isinstance(more_gpus, Placement)
    assert isinstance(more_interfaces, Placement)
    assert more_gpus.pfs[0] == more_interfaces.pfs[0] == 0
    units = ["0000:00:00.0", "0000:01:00.0"]
    details = {"uuids": ["GPU-0", "GPU-1"], "containers": {"c": units}, "beside": {units[0]: 0}}
    assert more_gpus.others[0][1] == Proposal(tuple(units), details, {VFS: {0: frozenset({"p0"})}})


def test_running_out_of_steps_is_reported() -> None:
    """And is no answer that there is no way. Choices of 8 of 16 GPUs in pairs are within the steps."""
    free = [gpu(f"a{number}", number) for number in range(8)]
    nearest = [[1 << number] for number in range(8)]
    # 8 choices of 33 looks each: a group to compare with, the GPU, and the PFs near it.
    with pytest.raises(Unmet, match=OUT_OF_BUDGET):
        list(choices(GpuRequest(1), free, nearest, 20, steps=Steps()))
    assert len(list(choices(GpuRequest(1), free, nearest, 400, steps=Steps()))) == 8
    pairs = [gpu(f"{'abcd'[number // 4]}{number // 2}", number, 0, number // 8) for number in range(16)]
    beside_all = [[1 << number // 2] * 8 for number in range(16)]
    assert len(list(choices(GpuRequest(8), pairs, beside_all, steps=Steps()))) == 1107


@pytest.mark.parametrize(
    ("count", "depth"), [pytest.param(32, 60, id="each below bridges of its own"), pytest.param(60, 0, id="no bridges")]
)
def test_the_largest_inventories_keep_to_the_steps_and_these_to_the_time(count: int, depth: int) -> None:
    """64 GPUs that all differ: each choice costs by its GPUs too, or 60 of 64 take a hundred times as long."""
    free, steps = [gpu([f"{number % 2**at}-{at}" for at in range(depth)], number) for number in range(64)], Steps()
    began = time.thread_time()
    with pytest.raises(Unmet, match=OUT_OF_BUDGET):
        list(choices(GpuRequest(count), free, [[1 << number] for number in range(64)], LOOKS, steps=steps))
    assert steps.spent >= LOOKS // 16, "a decision counts them beside those for VFs"
    assert depth or time.thread_time() - began < 0.4


# Some share all bridges, some two, some one.
PATHS = ("apx", "apx", "apy", "apy", "aq", "bv", "c")
_path = st.sampled_from(PATHS)
_free = st.lists(st.tuples(_path, st.sampled_from([None, 0, 1]), st.sampled_from([None, 0, 1])), min_size=2, max_size=8)
_vfs: Sequence[Vfs | None] = (None, "switch", "switch", "switch")
_nics = st.lists(st.tuples(st.sampled_from(PATHS[:5]), st.integers(0, 2)), min_size=1, max_size=4)
# Which of the PFs an interface selects, as a bit mask: most select all.
_selectors = st.lists(st.sampled_from([15, 15, 15, 7, 11, 13, 14, 5]), max_size=4)
_together: Sequence[Together | None] = (None, None, None, None, "link", "switch", "numa")


@settings(max_examples=300)
@given(st.integers(1, 4), st.sampled_from(_together), st.sampled_from(_vfs), _free, _nics, _selectors)
def test_a_way_is_found_exactly_if_there_is_one(
    count: int,
    together: Together | None,
    vfs: Vfs | None,
    paths: list[tuple[str, int | None, int | None]],
    nics: list[tuple[str, int]],
    selectors: list[int],
) -> None:
    """Compared with trying every choice of GPUs, and for each every way to give its interfaces VFs."""
    free = [gpu(path, number, link, numa) for number, (path, link, numa) in enumerate(paths)]
    pfs = [pf(path, f"p{number}") for number, (path, _) in enumerate(nics)]
    left = {one.name: vf_count for one, (_, vf_count) in zip(pfs, nics, strict=True)}
    admitted = [[one for number, one in enumerate(pfs) if mask >> number & 1] for mask in selectors]
    request = GpuRequest(count, together=together, vfs=vfs, limits=(ContainerLimit("c", count),))
    # An interface selects its PFs by a glob that holds their numbers.
    vf_request = PodRequest(tuple(VfRequest(pf=f"p[{''.join(one.name[1:] for one in some)}]") for some in admitted))
    asked = vf_request if admitted else None
    found = placed(request, free, asked, [(one, left[one.name]) for one in pfs])
    assert isinstance(found, Placement) == any(
        _is_way(request, choice, admitted, left) for choice in itertools.combinations(free, count)
    )
    if isinstance(found, Placement):
        numbers = gpus_of(found)
        assert isinstance(numbers, list)
        assert numbers == sorted(numbers)
        assert _is_way(request, [free[number] for number in numbers], admitted, left)
        if vfs is not None:
            way = [pfs[index] for index in found.pfs]
            assert _near(request, [free[number] for number in numbers], way, admitted)


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


@settings(max_examples=200)
@given(st.integers(1, 4), _free)
def test_no_choice_is_tighter_or_breaks_fewer(count: int, paths: list[tuple[str, int | None, int | None]]) -> None:
    free = [gpu(path, number, link, numa) for number, (path, link, numa) in enumerate(paths)]
    groups = {frozenset(range(len(free)))} | {frozenset([number]) for number in range(len(free))}
    for name in {bridge for one in free for bridge in one.pcie}:
        groups.add(frozenset(number for number, one in enumerate(free) if name in one.pcie))
    for kind in ("numa", "link"):
        known = [(number, value) for number, one in enumerate(free) if (value := getattr(one, kind)) is not None]
        groups |= {frozenset(number for number, value in known if value == each) for _, each in known}

    def cost(choice: Sequence[int]) -> tuple[int, int]:
        taken = set(choice)
        return (
            min(len(group) for group in groups if taken <= group),
            sum(len(group) for group in groups if group & taken and group - taken),
        )

    found = gpus_of(placed(GpuRequest(count), free))
    if isinstance(found, list):
        assert cost(found) == min(map(cost, itertools.combinations(range(len(free)), count)))
    else:
        assert len(free) < count
