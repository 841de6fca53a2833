"""Which GPUs are in one group of links: without a switch only those that reach each other."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advertiser.inventory.gpu.facts import GpuFacts, KfdNode, NvmlGpu
from advertiser.inventory.gpu.links import link_groups


def _groups(*links: str, switched: str = "") -> list[str]:
    """Return the groups of GPUs named by letters; a link such as ``ab`` is one that a's end tells."""
    names = sorted({*"".join(links), *switched})
    nvml = {
        name: NvmlGpu(nvlinks=frozenset(link[1] for link in links if link[0] == name), switched=name in switched)
        for name in names
    }
    found = link_groups(GpuFacts(nvml=nvml))
    numbers = sorted(set(found.values()))
    return ["".join(sorted(name for name, number in found.items() if number == group)) for group in numbers]


def _both(*links: str) -> list[str]:
    return [end for link in links for end in (link, link[::-1])]


@pytest.mark.parametrize(
    ("links", "switched", "groups"),
    [
        ((), "abcd", ["abcd"]),
        (_both("ab", "cd"), "", ["ab", "cd"]),
        (_both("ab", "bc"), "", ["ab"]),
        (("ab",), "", []),
        (("aa",), "", []),
        (_both("ab"), "cd", ["ab", "cd"]),
        (_both("ab", "bc", "ca", "cd"), "", ["abc"]),
        (_both("ab", "bd", "be", "de"), "", ["bde"]),
    ],
)
def test_groups_hold_only_gpus_that_reach_each_other(links: list[str], switched: str, groups: list[str]) -> None:
    """A link that one end alone tells is none; what remains of a chain is alone."""
    assert _groups(*links, switched=switched) == groups


def test_kfd_and_the_hive_are_one_source() -> None:
    """KFD lists the GPUs of a hive as linked."""
    kfd = {name: KfdNode(xgmi=frozenset("ab") - {name}) for name in "ab"}
    assert link_groups(GpuFacts(kfd=kfd)) == {"a": 0, "b": 0}


_pairs = st.lists(st.sampled_from([a + b for a, b in itertools.combinations("abcdefg", 2)]), unique=True)


@given(_pairs)
def test_groups_are_disjoint_complete_and_leave_no_pair_over(pairs: list[str]) -> None:
    """Of any mesh: no two GPUs that are left over could make one more group."""
    groups = _groups(*_both(*pairs))
    linked = {frozenset(pair) for pair in pairs}
    for group in groups:
        assert all(frozenset(pair) in linked for pair in itertools.combinations(group, 2))
    grouped = "".join(groups)
    assert len(grouped) == len(set(grouped))
    assert not any(pair.isdisjoint(grouped) for pair in linked)
    largest = max((len(group) for group in groups), default=0)
    assert not _is_clique(linked, largest + 1)


def _is_clique(linked: set[frozenset[str]], size: int) -> bool:
    return size > 1 and any(
        all(frozenset(pair) in linked for pair in itertools.combinations(some, 2))
        for some in itertools.combinations("abcdefg", size)
    )
