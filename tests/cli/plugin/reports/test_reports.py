"""The reports, from values alone."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cli.plugin.reports import explain, nodes, pods, top
from cli.plugin.reports.objects import Event, Node, Pod
from cli.plugin.reports.tables import Answer, Cell, Table, cells, draw
from cli.plugin.reports.use import uses
from mooring import names
from mooring.annotations.inventory import Out, dump_inventory, read_inventory
from mooring.annotations.pf_terms import Access
from mooring.annotations.rates import PodRates, RatesInForce, VfRates, dump_rates, dump_rates_in_force
from mooring.indexes import Indexes
from tests.cli.plugin.cluster import as_nodes, as_pods, bound, given, node, pf, pod, waiting


def text(answer: Answer) -> list[list[str]]:
    """Return the first table's rows, split at blanks."""
    return [line.split() for line in draw(answer.tables[:1], coloured=False).splitlines()[1:]]


def test_a_pf_shows_what_is_free_held_and_out_and_these_are_all_its_vfs() -> None:
    """A VF that is held and out counts as held; both hold their rate."""
    out = Out(Indexes.of([0, 3]), "bound to vfio-pci")
    first, second = pf(0, out=(out,)), pf(1, up=False)
    found = uses(as_nodes(node("n1", (first, second))), as_pods(bound("a", "n1", (first, 0, 5000), (first, 1, 0))))
    answer = nodes.report(found, wide=False)
    assert text(answer) == [
        ["n1", "ready", "pf0", "rail0", "up", "1", "2", "1", "85000"],
        ["n1", "ready", "pf1", "rail1", "down", "4", "0", "0", "90000"],
    ]


def test_an_answer_says_little_of_itself_however_large_it_is() -> None:
    """`asyncio.run` writes the repr of its result where it ends: for 10,000 rows that took longer than the rest."""
    answer = pods.report(as_pods(*(bound(f"p{number}", "n1", (pf(), 0, 0)) for number in range(50))), wide=True)
    assert len(answer.tables[0].rows) == 50
    assert repr(answer) == "Answer(notes=(), status=0)"


@pytest.mark.parametrize(
    "text",
    ["[", "[]", '{"v":2}', '{"v":1,"x":"\\ud800"}', '{"v":1,"x":NaN}', '{"v":1,"x":1e999}', '{"v":1,"x":' + "[" * 5000],
)
def test_what_an_event_says_is_shown_only_if_every_format_can(text: str) -> None:
    """A writer of events must not end the command: a lone surrogate is not valid in YAML, infinity not in JSON."""
    metadata = {"name": "e", "annotations": {names.WHY: text}}
    event = {"metadata": metadata, "involvedObject": {"uid": "u"}, "reason": "Scheduled"}
    told = explain.latest([msgspec.convert(event | {"lastTimestamp": "2026-01-01T00:00:00Z"}, Event)], "u")
    assert told is not None
    assert told.why == {}


def test_what_nobody_could_read_is_shown_as_unknown() -> None:
    """Without the pods use is unknown; zero would be wrong."""
    answer = nodes.report(uses(as_nodes(node("n1", (pf(),))), None), wide=False)
    assert text(answer)[0][5:] == ["?", "?", "0", "?"]


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"boot": "boot-0"}, "inventory of another boot"),
        ({"ready": False}, "node is not Ready"),
        ({"inventory": "{"}, "annotation 'mooring.dev/inventory'"),
    ],
)
def test_a_node_from_which_nothing_new_is_given_says_why(fields: dict[str, object], fault: str) -> None:
    """The reason shown is the one that the scheduler uses."""
    (found,) = uses(as_nodes(node("n1", (pf(),), **fields)), [])
    assert found.fault.startswith(fault)


def test_an_assignment_that_names_another_pod_holds_nothing_and_is_shown() -> None:
    """A forged or copied annotation takes no VF from another pod."""
    forged = pod(
        "b", "[{}]", annotations={names.ASSIGNMENT: given("uid-a", "n1", (pf(), 0, 0))}, spec={"nodeName": "n1"}
    )
    both = as_pods(bound("a", "n1", (pf(), 0, 0)), forged)
    (found,) = uses(as_nodes(node("n1", (pf(),))), both)
    assert found.pfs[0].used == 1
    assert not found.disputed
    shown = text(pods.report(both, wide=False))
    assert [row[1:3] for row in shown] == [["a", "Running"], ["b", "InvalidAssignment"]]


def test_a_pod_that_has_ended_holds_nothing() -> None:
    """Its VFs are free again, whatever its annotation still has."""
    ended = bound("a", "n1", (pf(), 0, 5000)) | {"status": {"phase": "Succeeded"}}
    (found,) = uses(as_nodes(node("n1", (pf(),))), as_pods(ended))
    assert (found.pfs[0].used, found.pfs[0].left_mbps) == (0, 90_000)


def test_top_adds_up_by_network_node_and_pf_and_names_the_biggest_first() -> None:
    """Shares are relative to what is offered."""
    rails = (pf(0), pf(1))
    holding = as_pods(
        bound("small", "n1", (rails[0], 0, 9000)), bound("big", "n2", (rails[0], 0, 18000), (rails[1], 0, 9000))
    )
    found = uses(as_nodes(node("n1", rails), node("n2", rails)), holding)
    document = json.loads(json.dumps(top.report(found, holding, 1).document))
    assert document["networks"][0] == {
        "network": "rail0", "used": 2, "vfs": 8, "reserved_mbps": 27_000, "offer_mbps": 180_000, "percent": 15,
    }  # fmt: skip
    assert [one["node"] for one in document["nodes"]] == ["n2"]
    assert [(one["node"], one["pf"]) for one in document["pfs"]] == [("n2", "pf0")]
    assert document["pods"] == [{"pod": "default/big", "node": "n2", "vfs": 2, "reserved_mbps": 27_000}]


def test_top_ends_with_how_many_more_there_are_and_how_to_see_them() -> None:
    """The largest ones do not look like all; if all are shown, there is no such line."""
    holding = as_pods(*(bound(f"p{one}", "n1", (pf(0), one, 1000)) for one in range(3)))
    found = uses(as_nodes(node("n1", (pf(0), pf(1)))), holding)
    short = top.report(found, holding, 2)
    assert draw(short.tables, coloured=False).splitlines()[-2:] == ["", "not shown: 1 pods; --most 3 shows all"]
    assert short.document["not_shown"] == {"nodes": 0, "pfs": 0, "pods": 1}
    whole = top.report(found, holding, 3)
    assert draw(whole.tables, coloured=False).splitlines()[-1].startswith("default/p")
    assert whole.document["not_shown"] == {"nodes": 0, "pfs": 0, "pods": 0}


def test_top_with_room_for_nothing_shows_networks_and_what_is_left_out() -> None:
    """It does not claim that nothing is on offer."""
    holding = as_pods(bound("a", "n1", (pf(0), 0, 1000)))
    found = uses(as_nodes(node("n1", (pf(0),))), holding)
    shown = draw(top.report(found, holding, 0).tables, coloured=False).splitlines()
    assert shown[0] == "networks"
    assert shown[3:] == ["", "not shown: 1 nodes, 1 PFs, 1 pods; --most 1 shows all"]


def test_a_cable_with_two_pfs_offers_its_rate_once() -> None:
    """Each PF shows what the cable has left; sums count its rate once, and each pod's rate where it is held."""
    pfs = (pf(0, port="c"), pf(1, port="c", network="rail0"), pf(2))
    holding = as_pods(bound("a", "n1", (pfs[0], 0, 30_000), (pfs[1], 0, 15_000)))
    found = uses(as_nodes(node("n1", pfs)), holding)
    shown = text(nodes.report(found, wide=True))
    assert [row[9:11] for row in shown] == [["45000", "90000"], ["45000", "90000"], ["90000", "90000"]]
    document = json.loads(json.dumps(top.report(found, holding, 5).document))
    assert {one["network"]: (one["reserved_mbps"], one["offer_mbps"]) for one in document["networks"]} == {
        "rail0": (45_000, 90_000),
        "rail2": (0, 90_000),
    }
    assert [(one["reserved_mbps"], one["offer_mbps"], one["percent"]) for one in document["nodes"]] == [
        (45_000, 180_000, 25)
    ]
    assert [(one["pf"], one["reserved_mbps"]) for one in document["pfs"]] == [
        ("pf0", 30_000), ("pf1", 15_000), ("pf2", 0),
    ]  # fmt: skip


def test_nodes_shows_which_namespaces_may_use_a_pf_and_what_each_holds_of_a_share() -> None:
    """A share counts over the PFs of an entry; without the pods nobody can say what namespaces hold."""
    half = Access(max_share=50, entry=1)
    pfs = (pf(0, access=Access(("team-a", "ml-*"))), pf(1, access=half), pf(2, access=half), pf(3))
    document = as_nodes(node("n1", pfs))
    holding = as_pods(bound("a", "n1", (pfs[1], 0, 0), (pfs[2], 3, 0)), bound("b", "n1", (pfs[0], 0, 0)))
    found = uses(document, holding)
    table = nodes.report(found, wide=True).tables[0]
    column = table.columns.index("NAMESPACES")
    assert [row[column].text for row in table.rows] == ["team-a,ml-*", "<=50%", "<=50%", "-"]
    assert "NAMESPACES" not in nodes.report(found, wide=False).tables[0].columns
    item = _item(nodes.report(found, wide=False))
    assert [(each["namespaces"], each["max_share"]) for each in item["pfs"]] == [
        (["team-a", "ml-*"], None), ([], 50), ([], 50), ([], None),
    ]  # fmt: skip
    share = {"pfs": ["pf1", "pf2"], "max_share": 50, "most_vfs": 4}
    assert item["shares"] == [share | {"held": {"default": 2}}]
    assert _item(nodes.report(uses(document, None), wide=False))["shares"] == [share | {"held": None}]


def _item(answer: Answer) -> dict[str, Any]:
    """Return the only item of the document that programs read."""
    (item,) = json.loads(json.dumps(answer.document))["items"]
    return dict(item)


def test_many_namespaces_of_a_pf_leave_a_wide_table_readable() -> None:
    """JSON has all of them."""
    access = Access(tuple(f"team-{number}" for number in range(64)), 25)
    (row,) = text(nodes.report(uses(as_nodes(node("n1", (pf(access=access),))), []), wide=True))
    assert row[-3:-1] == ["team-0,team-1,team-2,team-3,+60", "<=25%"]


def event(uid: str, when: str, reason: str, why: str, name: str = "") -> Event:
    return msgspec.convert(
        {
            "metadata": {"name": name, "annotations": {names.WHY: why}},
            "involvedObject": {"uid": uid},
            "reason": reason,
            "message": reason,
            "lastTimestamp": when,
        },
        Event,
        strict=False,
    )


def test_the_latest_event_of_that_very_pod_explains_it() -> None:
    """An earlier pod of that name has another uid; a value that is not JSON explains nothing, and stops nothing."""
    events = [
        event("u1", "2026-01-01T00:00:01Z", "FailedScheduling", '{"v":1,"nodes":1}'),
        event("u1", "2026-01-01T00:00:02Z", "Scheduled", '{"v":1,"node":"n1"}'),
        event("u0", "2026-01-01T00:00:03Z", "FailedScheduling", '{"v":1}'),
    ]
    told = explain.latest(events, "u1")
    assert told is not None
    assert (told.message, told.why, told.when) == ("Scheduled", {"v": 1, "node": "n1"}, "2026-01-01T00:00:02Z")
    broken = explain.latest([event("u1", "2026-01-01T00:00:01Z", "Scheduled", "{")], "u1")
    assert broken is not None
    assert broken.why == {}
    assert explain.latest(events, "u2") is None


def test_of_two_events_of_one_second_the_later_one_explains_a_pod() -> None:
    """Events have no part of a second in their times; the API server lists them by name."""
    when = "2026-01-01T00:00:01Z"
    events = [
        event("u1", when, reason, "{}", f"p.18a{n}") for n, reason in enumerate(("FailedScheduling", "Scheduled"))
    ]
    told = explain.latest(events, "u1")
    assert told is not None
    assert told.message == "Scheduled"


@pytest.mark.parametrize("why", [{"counts": 3}, {"counts": {"x": []}, "refused": []}, {"scores": "x"}, {"nodes": {}}])
def test_an_event_that_says_nonsense_is_shown_as_far_as_it_goes(why: dict[str, object]) -> None:
    """Any user may write events."""
    answer = explain.report(as_pods(pod("a", "[{}]"))[0], explain.DecisionReport("event", "m", why))
    assert "default/a" in draw(answer.tables, coloured=True)


def test_a_table_is_plain_where_it_is_piped_and_coloured_on_a_terminal() -> None:
    """The same text; numbers are aligned to the right."""
    table = Table(("NAME", "VFS"), [cells("a", 1), cells(Cell("bb", "bad"), 10)])
    assert draw([table], coloured=False) == "NAME   VFS\na        1\nbb      10"
    assert draw([table], coloured=True).splitlines()[2] == "\x1b[31mbb  \x1b[0m    10"


def test_what_an_annotation_says_never_commands_the_terminal() -> None:
    """Escape sequences in an annotation are printed escaped."""
    hostile = Table(("NAME",), [cells("a\x1b]0;owned\x07\nb")])
    assert (
        draw([hostile], coloured=False)
        == "NAME\na\N{REPLACEMENT CHARACTER}]0;owned\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}b"
    )


def test_a_pod_says_why_it_waits() -> None:
    """Wide output has the scheduler's last message."""
    waits = as_pods(pod("a", "[{}]", status=waiting("Unschedulable", "0/3")))
    drawn = draw(pods.report(waits, wide=True).tables, coloured=False)
    assert drawn.splitlines()[1].split()[:4] == ["default", "a", "Unschedulable", "-"]
    assert drawn.endswith("0/3")


def _changed(reason: str, in_force: int, *, says_rates: bool = True) -> tuple[Pod, Node]:
    """Return a pod whose rates were lowered from 20000 to 5000 and that asks for 9000 by now, and its node."""
    document, uid = bound("a", "n1", (pf(), 0, 20_000)), "uid-a"
    rates = PodRates(uid, "n1", 1, (VfRates(5_000, 6_000),), (20_000,))
    document["metadata"]["annotations"] |= {names.RATES: dump_rates(rates), names.REQUEST: '[{"min_tx_rate":9000}]'}
    document["status"]["conditions"] = [{"type": "MooringRates", "status": "False", "reason": reason, "message": "m"}]
    there = node("n1", (pf(),))
    text = dump_rates_in_force(RatesInForce({uid: in_force}))
    there["metadata"]["annotations"][names.RATES_IN_FORCE] = text
    inventory = read_inventory(there["metadata"]["annotations"][names.INVENTORY])
    there["metadata"]["annotations"][names.INVENTORY] = dump_inventory(replace(inventory, rates=says_rates))
    return as_pods(document)[0], as_nodes(there)[0]


def test_changed_rates_are_shown_as_desired_and_allocated_with_what_became_of_them() -> None:
    """And in the JSON what the VF may still have."""
    one, _ = _changed("Deferred", 0)
    answer = pods.report([one], wide=True)
    shown = draw(answer.tables, coloured=False)
    assert "5000       6000" in shown
    assert "9000/0" in shown
    assert "Deferred" in shown
    items: Any = answer.document["items"]
    (item,) = items
    assert item["rates"] == {"state": "Deferred", "generation": 1}
    (vf,) = item["vfs"]
    assert (vf["min_tx_rate"], vf["desired"]) == (5_000, {"min_tx_rate": 9_000, "max_tx_rate": None})
    assert vf["reserved_mbps"] == 20_000


def test_what_is_in_force_is_shown_beside_a_later_edit_that_waits() -> None:
    """The condition tells of the edit alone, the node of what is allocated."""
    for generation, told, reserved in ((1, "Deferred/InForce", {}), (0, "Deferred ", {"reserved_mbps": 20_000})):
        one, there = _changed("Deferred", generation)
        answer = pods.report([one], [there], wide=True)
        assert told in draw(answer.tables, coloured=False)
        items: Any = answer.document["items"]
        assert items[0]["rates"] == {"state": "Deferred", "generation": 1, "in_force": generation == 1}
        assert {key: value for key, value in items[0]["vfs"][0].items() if key == "reserved_mbps"} == reserved


def test_a_lowered_rate_is_in_use_until_its_node_says_that_it_is_in_force() -> None:
    """The scheduler counts it so too."""
    for generation, reserved in ((0, 20_000), (1, 5_000)):
        one, there = _changed("Allocated", generation)
        found = uses([there], [one])
        assert found[0].pfs[0].reserved_mbps == reserved
        assert top.report(found, [one], 1).document["pods"] == [
            {"pod": "default/a", "node": "n1", "vfs": 1, "reserved_mbps": reserved}
        ]
    one, there = _changed("Infeasible", 1, says_rates=False)
    assert uses([there], [one])[0].pfs[0].reserved_mbps == 20_000


def test_a_long_last_column_goes_on_below_itself_on_a_narrow_terminal() -> None:
    """Nothing is cut, and what a pipe gets stays one line; a table that is too wide anyway is left as it is."""
    row = cells("pods", "2 wait: default/big and 1 more: 0/4 nodes are available: 4 Insufficient cpu.")
    table = Table(("SUBJECT", "FOUND"), [row], "findings")
    assert draw([table], coloured=False, width=50).splitlines() == [
        "findings",
        "SUBJECT   FOUND",
        "pods      2 wait: default/big and 1 more: 0/4",
        "          nodes are available: 4 Insufficient cpu.",
    ]
    for width in (0, 30):
        assert len(draw([table], coloured=False, width=width).splitlines()) == 3


def test_columns_fit_80_characters() -> None:
    """With names as they often are; -o wide has the others."""
    first = pf(0, name="enp4s0f0np0")
    found = uses(as_nodes(node("node-17", (first,))), as_pods(bound("train-0", "node-17", (first, 0, 5000))))
    tables = [*nodes.report(found, wide=False).tables, *top.report(found, [], 5).tables]
    assert max(map(len, draw(tables, coloured=False).splitlines())) <= 80


def test_the_room_of_spares_counts_as_used_but_for_what_pods_have_taken() -> None:
    """As the newest record of the group has it."""
    spare = {"v": 1, "uid": "uid-a-spare-0", "node": "n1"}
    pf0: dict[str, object] = {"pf": "pf0", "link": "ethernet", "network": "rail0"}
    entries = [{**pf0, "vf": index, "pci": pf(0).vf_pci(index)} for index in (1, 2, 3)]
    old, new = ([spare | {"vfs": [entry]} for entry in some] for some in (entries[:1], entries[1:]))
    members = []
    for name, time, record in (("a", "2026-01-01T00:00:00Z", old), ("b", "2026-01-01T01:00:00Z", new)):
        member = bound(name, "n2")
        member["metadata"]["annotations"] |= {names.GROUP: '{"name":"g","min":1}', names.SPARES: json.dumps(record)}
        bound_at = {"type": "PodScheduled", "status": "True", "lastTransitionTime": time}
        member["status"] = {"phase": "Running", "conditions": [bound_at]}
        members.append(member)
    taker = bound("taker", "n1", (pf(0), 3, 0))
    (first, _) = uses(as_nodes(node("n1", (pf(0),)), node("n2")), as_pods(*members, taker))
    assert (first.pfs[0].free, first.pfs[0].used) == (2, 2)
    assert first.disputed == {}


@pytest.mark.parametrize(
    ("replicas", "jobs", "count"), [("012", "xxx", 3), ("000", "xyz", 1)], ids=["three-groups", "three-jobs"]
)
def test_the_spares_of_each_group_of_one_template_count(replicas: str, jobs: str, count: int) -> None:
    """A LeaderWorkerSet makes groups that differ in a label; several Jobs can make one group."""
    members = []
    for index, (name, replica, job) in enumerate(zip("abc", replicas, jobs, strict=True)):
        entry = {"pf": "pf0", "link": "ethernet", "network": "rail0", "vf": index, "pci": pf(0).vf_pci(index)}
        record = json.dumps([{"v": 1, "uid": f"uid-{name}-spare-0", "node": "n1", "vfs": [entry]}])
        member = bound(name, "n2")
        member["metadata"]["labels"] = {"group": replica, "batch.kubernetes.io/controller-uid": job}
        group = '{"name_from":"group","min":1,"spares":1}'
        member["metadata"]["annotations"] |= {names.GROUP: group, names.SPARES: record}
        members.append(member)
    (first, _) = uses(as_nodes(node("n1", (pf(0),)), node("n2")), as_pods(*members))
    assert first.pfs[0].used == count
