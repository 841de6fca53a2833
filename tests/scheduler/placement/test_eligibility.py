"""Which PFs may give each interface: the same as judging each pair of interface and PF, at a part of its cost.

A node's reason says which part of an interface's request leaves it no PF.
"""

import gc
import re
import weakref
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.annotations.inventory import Pf
from mooring.annotations.pf_terms import Allow
from mooring.annotations.request import NO_RAIL, PodRequest, VfRequest
from mooring.indexes import Indexes
from mooring.natural_order import natural
from mooring.nic.settings import VfSettings
from scheduler.kube.outcomes import Refused
from scheduler.placement import eligibility as subject
from scheduler.placement.eligibility import Eligibility, glob, refused_netdev, refused_settings, unmet_part
from scheduler.placement.place import VfDemand
from tests.scheduler.conftest import Json, MakePf
from tests.scheduler.group_life import Life


def _may_give(one: VfRequest, pf: Pf, networks: list[str]) -> bool:
    rail = networks[one.rail] if one.rail is not None and one.rail < len(networks) else ""
    return (
        (one.network is None or one.network == pf.network)
        and (one.rail is None or (rail != "" and pf.network == rail))
        and (one.link is None or one.link == pf.link)
        and (one.pf is None or fnmatchcase(pf.name, one.pf))
        and (one.min_tx_rate == 0 or (pf.up and one.min_tx_rate <= pf.offer_mbps))
    )


def _each_pair(request: PodRequest, pfs: tuple[Pf, ...]) -> tuple[VfDemand, ...] | Refused:
    networks = sorted({pf.network for pf in pfs if pf.network}, key=natural)
    demands = []
    for one in request.interfaces:
        selected = [index for index, pf in enumerate(pfs) if _may_give(one, pf, networks)]
        if not selected:
            return Refused(unmet_part(one, pfs))
        reasons = [
            refused_netdev(one.netdev, pfs[index]) or refused_settings(one.settings, pfs[index]) for index in selected
        ]
        if all(reasons):
            return Refused(min(reasons))
        able = [index for index, reason in zip(selected, reasons, strict=True) if not reason]
        demands.append(VfDemand(one.min_tx_rate, sum(1 << index for index in able)))
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


@given(st.lists(_REQUESTS, min_size=1, max_size=4), st.lists(_PFS, min_size=1, max_size=3))
def test_it_is_as_if_each_interface_was_compared_with_each_pf(
    make_pf: MakePf, interfaces: list[VfRequest], nodes: list[list[dict[str, Any]]]
) -> None:
    """For several nodes by the same object, as what it keeps of one is used for the next."""
    request = PodRequest(tuple(interfaces))
    eligibility = Eligibility(request)
    for node in nodes:
        pfs = tuple(make_pf(number, mbps=30, **fields) for number, fields in enumerate(node))
        expected = _each_pair(request, pfs)
        assert eligibility.demands(pfs) == expected
        assert eligibility.refusal(pfs) == (expected.reason if isinstance(expected, Refused) else "")


def test_pfs_that_differ_in_their_vfs_netdevs_alone_are_judged_apart(make_pf: MakePf) -> None:
    """What is kept of the first is not the second's."""
    eligibility = Eligibility(PodRequest((VfRequest(netdev=True),)))
    without, whole = (make_pf(link="infiniband", vf_netdevs=has_netdevs) for has_netdevs in (False, True))
    assert eligibility.refusal((without,)) == "the PF has VFs without a netdev"
    assert eligibility.refusal((whole,)) == ""


def test_what_is_kept_of_pfs_is_bounded_and_freed_without_a_collection(make_pf: MakePf) -> None:
    """A node may call its PFs anything, and write another inventory each second; garbage is collected rarely."""
    gc.disable()
    try:
        eligibility = Eligibility(PodRequest((VfRequest(pf="*"), VfRequest(VfSettings(vlan=5)))))
        for number in range(2 * subject._MAX_KINDS):
            pf = make_pf(name=f"pf{number}", network=f"n{number}", allow=Allow(vlan=Indexes.of([5, 6 + number])))
            assert eligibility.refusal((pf,)) == ""
        assert max(eligibility._selector_mask.cache_info().currsize, len(eligibility._able)) <= subject._MAX_KINDS
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
    beyond: int, life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 interfaces that all differ, at 40 nodes whose rates all differ.

    Where the last of them fits nowhere, it alone is judged again for each node's message.
    """
    judged = list[Pf]()

    def counting(settings: VfSettings, pf: Pf) -> str:
        judged.append(pf)
        return refused_settings(settings, pf)

    monkeypatch.setattr(subject, "refused_settings", counting)
    for number in range(40):
        life.show_node(f"n{number}", *(life.make_pf(pf, vfs=32, offer_mbps=90_000 - number) for pf in range(4)))
    rates = [{"max_tx_rate": 50_000 + number, "min_tx_rate": number} for number in range(1, 64)]
    life.see(life.make_pod(request=[*rates, {"max_tx_rate": 100_000 + beyond}]))
    assert life.machine.step(0.0)
    assert len(judged) <= 64 + beyond * 40 * 4


def _unmet(make_pf: MakePf, rate: int = 0, down: tuple[int, ...] = (), **fields: Any) -> str:
    """Return why a node has no PF for an interface: it has two slow ones of rail0, and a fast InfiniBand one."""
    rail0: Json = {"network": "rail0", "mbps": 100_000, "offer_mbps": 90_000}
    storage: Json = {"network": "storage", "mbps": 400_000, "offer_mbps": 390_000, "link": "infiniband"}
    pfs = [make_pf(number, up=number not in down, **one) for number, one in enumerate((rail0, rail0, storage))]
    return unmet_part(VfRequest(VfSettings(min_tx_rate=rate), **fields), pfs)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"network": "rail9"}, "on network 'rail9'"),
        ({"pf": "eth*"}, "named 'eth*'"),
        ({"rail": 2}, "on network number 3"),
        ({"rail": NO_RAIL}, "on the group's network"),
        ({"rate": 400_000}, "fast enough for 400000 Mb/s"),
        ({"rate": 1, "down": (0, 1, 2)}, "with its link up"),
        # A part that other PFs of the node meet names the parts before it: the user may change either.
        ({"network": "storage", "pf": "pf0"}, "named 'pf0' among those on network 'storage'"),
        ({"network": "rail0", "link": "infiniband"}, "of link type 'infiniband' among those on network 'rail0'"),
        ({"network": "rail0", "rate": 200_000}, "fast enough for 200000 Mb/s among those on network 'rail0'"),
        (
            {"pf": "pf[01]", "link": "ethernet", "rate": 200_000},
            "fast enough for 200000 Mb/s among those named 'pf[01]' and of link type 'ethernet'",
        ),
        ({"network": "storage", "rate": 1, "down": (2,)}, "with its link up among those on network 'storage'"),
        # A PF that is down has no rate to give, however fast it is.
        ({"rate": 200_000, "down": (2,)}, "fast enough for 200000 Mb/s"),
        # The first to narrow down is the reason: network before name, link type and rate.
        ({"network": "rail9", "pf": "eth*", "link": "none", "rate": 400_000}, "on network 'rail9'"),
        ({"pf": "eth*", "link": "none", "rate": 400_000}, "named 'eth*'"),
        ({"link": "none", "rate": 400_000}, "of link type 'none'"),
    ],
)
def test_the_part_of_a_request_that_leaves_no_pf_is_the_reason(fields: Json, reason: str, make_pf: MakePf) -> None:
    assert _unmet(make_pf, **fields) == f"node(s) had no PF {reason}"


def test_only_a_node_without_any_pf_has_a_reason_whatever_is_requested(make_pf: MakePf) -> None:
    assert unmet_part(VfRequest(network="rail0"), []) == unmet_part(VfRequest(), []) == "node(s) had no PF on offer"
    assert _unmet(make_pf) == ""
