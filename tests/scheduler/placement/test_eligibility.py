"""Which PFs may give each interface: the same as judging each pair of interface and PF, at a part of its cost."""

import gc
import re
import weakref
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mooring.annotations.inventory import Pf
from mooring.annotations.pf_terms import Allow
from mooring.annotations.request import PodRequest, VfRequest
from mooring.indexes import Indexes
from mooring.natural_order import natural
from mooring.nic.settings import VfSettings
from scheduler.kube.outcomes import Refused
from scheduler.placement import eligibility as subject
from scheduler.placement.eligibility import Eligibility, glob, refused_netdev, refused_settings
from scheduler.placement.place import VfDemand
from scheduler.state.machine import Machine
from tests.scheduler.conftest import MakeNode, MakePf, MakePod
from tests.scheduler.state.steps import take_in


def _may_give(one: VfRequest, pf: Pf, networks: list[str]) -> bool:
    rail = networks[one.rail] if one.rail is not None and one.rail < len(networks) else ""
    return (
        (one.network is None or one.network == pf.network)
        and (one.rail is None or (rail != "" and pf.network == rail))
        and (one.link is None or one.link == pf.link)
        and (one.pf is None or fnmatchcase(pf.name, one.pf))
        and (one.min_tx_rate == 0 or (pf.up and one.min_tx_rate <= pf.offer_mbps))
    )


def _unmet_part(one: VfRequest, pfs: tuple[Pf, ...], networks: list[str]) -> str:
    """Return the first part for which no PF is left, found by asking for more and more of them."""
    if not pfs:
        return "node(s) had no PF on offer"
    nothing = VfRequest()
    parts = [
        (VfRequest(network=one.network), f"on network '{one.network}'"),
        (VfRequest(rail=one.rail), f"on network number {(one.rail or 0) + 1}"),
        (VfRequest(pf=one.pf), f"named '{one.pf}'"),
        (VfRequest(link=one.link), f"of link type '{one.link}'"),
        (VfRequest(VfSettings(min_tx_rate=one.min_tx_rate and 1)), "with its link up"),
        (VfRequest(VfSettings(min_tx_rate=one.min_tx_rate)), f"fast enough for {one.min_tx_rate} Mb/s"),
    ]
    left, before = list(pfs), list[str]()
    for part, words in parts:
        # Any rate will do, of a PF that is up.
        known = [replace(pf, offer_mbps=1, mbps=1) if words == "with its link up" else pf for pf in pfs]
        meeting = [pf for pf, seen in zip(pfs, known, strict=True) if _may_give(part, seen, networks)]
        left = [pf for pf in left if pf in meeting]
        if not left:
            tail = f" among those {' and '.join(before)}" if meeting and before else ""
            return f"node(s) had no PF {words}{tail}"
        before += [words] if part != nothing and not part.min_tx_rate else []
    raise AssertionError("some part leaves none")


def _each_pair(request: PodRequest, pfs: tuple[Pf, ...]) -> tuple[VfDemand, ...] | Refused:
    networks = sorted({pf.network for pf in pfs if pf.network}, key=natural)
    demands = []
    for one in request.interfaces:
        selected = [index for index, pf in enumerate(pfs) if _may_give(one, pf, networks)]
        if not selected:
            return Refused(_unmet_part(one, pfs, networks))
        seen = {index: pfs[index] for index in selected}
        reasons = {
            index: refused_netdev(one.netdev, pf) or refused_settings(one.settings, pf) for index, pf in seen.items()
        }
        if all(reasons.values()):
            return Refused(min(reasons.values()))
        demands.append(VfDemand(one.min_tx_rate, sum(1 << index for index in selected if not reasons[index])))
    return tuple(demands)


_SETTINGS = st.builds(
    VfSettings,
    min_tx_rate=st.sampled_from([None, 0, 5, 10, 20]),
    max_tx_rate=st.sampled_from([None, 0, 20, 40]),
    mac=st.sampled_from([None, "02:00:00:00:00:01", "02:00:00:00:00:02"]),
    vlan=st.sampled_from([None, 0, 5, 6]),
    trust=st.sampled_from([None, True]),
    guid=st.sampled_from([None, "02:00:00:00:00:00:00:01"]),
)
_REQUESTS = st.builds(
    VfRequest,
    settings=_SETTINGS,
    network=st.sampled_from([None, None, "a1", "a2"]),
    pf=st.sampled_from([None, None, "p*", "*[02]", "q"]),
    link=st.sampled_from([None, None, "ethernet", "infiniband"]),
    rail=st.sampled_from([None, None, 0, 1]),
    netdev=st.sampled_from([None, None, True, False]),
)
_PFS = st.lists(
    st.fixed_dictionaries(
        {
            "network": st.sampled_from(["", "a1", "a2", "a10"]),
            "link": st.sampled_from(["ethernet", "infiniband"]),
            "up": st.booleans(),
            "offer_mbps": st.sampled_from([0, 5, 10, 30]),
            "can": st.sampled_from([frozenset(), frozenset({"min_tx_rate", "max_tx_rate", "vlan", "mac", "trust"})]),
            "allow": st.sampled_from([Allow(), Allow(vlan=Indexes.of([5]), mac=True, trust=True)]),
            "vlan": st.sampled_from([None, 6]),
            "vf_netdevs": st.sampled_from([None, True, False]),
        }
    ),
    max_size=4,
)


def _pfs(make_pf: MakePf, given_: list[dict[str, Any]]) -> tuple[Pf, ...]:
    return tuple(make_pf(number, mbps=30, **one) for number, one in enumerate(given_))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_REQUESTS, min_size=1, max_size=4), st.lists(_PFS, min_size=1, max_size=3))
def test_it_is_as_if_each_interface_was_compared_with_each_pf(
    make_pf: MakePf, interfaces: list[VfRequest], nodes: list[list[dict[str, Any]]]
) -> None:
    """For several nodes by the same object, as what it keeps of one is used for the next."""
    request = PodRequest(tuple(interfaces))
    eligibility = Eligibility(request)
    for node in nodes:
        pfs = _pfs(make_pf, node)
        expected = _each_pair(request, pfs)
        assert eligibility.demands(pfs) == expected
        assert eligibility.refusal(pfs) == (expected.reason if isinstance(expected, Refused) else "")


def test_pfs_that_differ_in_their_vfs_netdevs_alone_are_judged_apart(make_pf: MakePf) -> None:
    """What is kept of the first is not the second's."""
    eligibility = Eligibility(PodRequest((VfRequest(netdev=True),)))
    without, whole = (make_pf(link="infiniband", vf_netdevs=told) for told in (False, True))
    assert eligibility.refusal((without,)) == "the PF has VFs without a netdev"
    assert eligibility.refusal((whole,)) == ""


def test_what_is_kept_of_pfs_is_bounded(make_pf: MakePf) -> None:
    """A node may call its PFs anything, and write another inventory each second."""
    eligibility = Eligibility(PodRequest((VfRequest(pf="*"), VfRequest(VfSettings(vlan=5)))))
    for number in range(2 * subject._MAX_KINDS):
        pf = make_pf(name=f"pf{number}", network=f"n{number}", allow=Allow(vlan=Indexes.of([5, 6 + number])))
        assert eligibility.refusal((pf,)) == ""
    assert max(eligibility._selector_mask.cache_info().currsize, len(eligibility._able)) <= subject._MAX_KINDS


def test_what_is_kept_of_a_request_is_freed_without_a_collection(make_pf: MakePf) -> None:
    """The scheduler collects garbage rarely."""
    gc.disable()
    try:
        eligibility = Eligibility(PodRequest((VfRequest(pf="*"),)))
        assert eligibility.refusal((make_pf(),)) == ""
        kept = weakref.ref(eligibility._selector_mask)
        del eligibility
        assert kept() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(("pattern", "count"), [(None, 4), ("pf*", 4 * 40)])
def test_selectors_are_compared_once_for_nodes_that_differ_only_in_names(
    make_pf: MakePf, pattern: str | None, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 interfaces on 4 networks: a PF is compared for each network, not interface; with its name if one reads it."""
    patterns = list[str]()

    def counting(text: str) -> re.Pattern[str]:
        patterns.append(text)
        return glob(text)

    monkeypatch.setattr(subject, "glob", counting)
    interfaces = [VfRequest(VfSettings(min_tx_rate=k), network=f"n{k % 4}", pf=pattern) for k in range(1, 65)]
    eligibility = Eligibility(PodRequest(tuple(interfaces)))
    for number in range(40):
        assert not eligibility.refusal([make_pf(name=f"pf{number}-{k}", network=f"n{k}", mbps=100) for k in range(4)])
    assert eligibility._selector_mask.cache_info().misses == count
    assert len(patterns) == (count if pattern else 0)


@pytest.mark.parametrize("beyond", [0, 1])
def test_settings_are_judged_once_for_all_nodes_of_a_model(
    machine: Machine,
    make_node: MakeNode,
    make_pf: MakePf,
    make_pod: MakePod,
    beyond: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """64 interfaces that all differ, at 40 nodes whose rates all differ.

    Where the last of them fits nowhere, it alone is judged again for each node's message.
    """
    judged = 0

    def counting(settings: VfSettings, pf: Pf) -> str:
        nonlocal judged
        judged += 1
        return refused_settings(settings, pf)

    monkeypatch.setattr(subject, "refused_settings", counting)
    for number in range(40):
        pfs = tuple(make_pf(pf, vfs=32, offer_mbps=90_000 - number) for pf in range(4))
        take_in(machine, make_node(f"n{number}", pfs))
    rates = [{"max_tx_rate": 50_000 + number, "min_tx_rate": number} for number in range(1, 64)]
    pod = make_pod(request=[*rates, {"max_tx_rate": 100_000 + beyond}])
    take_in(machine, pod)
    assert machine.step(0.0)
    assert judged <= 64 + beyond * 40 * 4
