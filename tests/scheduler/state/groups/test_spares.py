"""Room for spare members: kept with exact VFs while the group runs, and used by a member that is made again."""

from dataclasses import replace

import pytest

from mooring import names
from mooring.annotations.pf_terms import Access
from mooring.annotations.spares import dump_spares, read_spares
from tests.scheduler.group_life import Life, annotated, binds, changed
from tests.scheduler.state.groups.group_story import LEADER, GroupStory
from tests.scheduler.story import play, stories

GROUP = '{"name":"train","min":2,"within":"rack","spares":1}'
ASKS = f"rack r1 | name annotation={GROUP}"
ASKS_NO_MORE = ASKS.replace('"spares":1', '"spares":0')
# The group has n1 and n2 of a rack of three nodes, and the spare n3.
START = f"{ASKS} | nodes n1..3 | come m0 m1 | at_once m0 m1 | on n1 n2"
ROLES = '{"name":"ray","role_from":"role","roles":{"head":1,"worker":2},"spares":1}'
HEAD, WORKER = f"request 0 | name annotation={ROLES} role=head", f"request 2 | name annotation={ROLES} role=worker"
OTHER = "request 1 | alone other"
URGENT = "spec priority=9 | alone urgent | at_once urgent"


@stories(
    {
        "is not given to others, unless their priority is higher": f"""
            {START} | {OTHER} | at_once | kept :n3 | kept_vfs 2 | {URGENT}""",
        "is used by a member that is made again": f"""
            {START} | alone other | at_once | lose n1 | delete m0 | come again | at_once again | on n3""",
        "stays when a member leaves": f"{START} | delete m0 | later 2 | at_once | kept :n3",
        "is released with the last member": f"{START} | delete m0 m1 | {OTHER} | later 2 | at_once other | kept",
        "is released once all ask for less": f"""
            {START} | {ASKS_NO_MORE} | join m0 | later 1 | at_once | kept :n3 | join m1 | later 1 | at_once | kept
            | {OTHER} | at_once other""",
        "is released when a VF of it is taken": f"""
            {START} | request 1 | {URGENT} | spec priority=0 | alone other | later 2 | at_once other | kept""",
        # It decides nothing for weeks, and only receives events.
        "is released by a standby": f"""
            {START} | request 0 | alone other@n1 | lead | kept :n3 | delete m0 m1 | later 2 | delete other | kept
            | no_record""",
        "has no record longer than its group": f"{START} | lose n3 | delete m0 m1 | later 1 | at_once | no_record",
        "is not kept by a new leader if a member was made again there, by the newest record": f"""
            {START} | later 3600 | lose n1 | delete m0 | come again | at_once again | nodes n1 | LEADER | kept""",
        "is necessary for a start": f"""
            {ASKS} | nodes n1 n2 | come m0 m1 | at_once | told m0 m1: group train: 2 of 3 members fit in rack 'r1',
            the best domain: 0/2 nodes are available for the 3rd member: 2 not enough free RDMA VFs. The members
            include 1 spare. | nodes n3 | later 15 | at_once m0 m1""",
        "is not necessary for a start if the group could preempt a pod there": f"""
            {ASKS} | fill n1 | nodes n2 n3 | spec priority=9 | come m0 m1 | at_once | evicted | later 2
            | at_once m0 m1 | evicted""",
        # A member that is made again evicts the pod.
        "evicts nobody": f"""
            {ASKS} | fill n1..3 | spec priority=9 | come m0 m1 | at_once | evicted on-n2 on-n3 | delete on-n2 on-n3
            | later 2 | at_once m0 m1 | on n2 n3 | kept | lose_node_of m0 | delete m0 | come again | later 2 | at_once
            | evicted on-n1""",
        # The member was deleted while no scheduler ran.
        "is recorded with each Binding, and kept by a new leader without the lost member": f"""
            {START} | kept :n3 | recorded m0 | recorded m1 | LOST""",
        # A head without VFs comes first; it is made again, and the workers' spare stays.
        "is as large as the largest member": f"""
            nodes n1..3 | {HEAD} | come a | {WORKER} | come b c | at_once a b c | kept :n3 | kept_vfs 2 | delete a
            | {HEAD} | come a | at_once a | recorded a | delete a | come a | at_once a | recorded a | kept_vfs 2
            | LEADER | kept :n3 | recorded a""",
    },
    LEADER=LEADER,
    LOST={
        "m0": "delete m0 | lead | at_once | kept :n3 | recorded m1 | alone o0 o1 | at_once o0 | on n1",
        "m1": "delete m1 | lead | at_once | kept :n3 | recorded m0 | alone o0 o1 | at_once o0 | on n2",
    },
)
def test_room_for_a_spare(life: Life, story: str) -> None:
    play(GroupStory(life), story)


@pytest.mark.parametrize("order", ["", "backwards"])
def test_of_two_records_with_one_vf_a_new_leader_keeps_the_newer(life: Life, order: str) -> None:
    """An earlier leader had lost the room of one group, and given it to the other."""
    story = GroupStory(life)
    play(story, f"{START} | later 3600 | rack r2 | nodes n4..6 | name annotation={GROUP.replace('train', 'later')}")
    play(story, "come l0 l1 | at_once l0 l1")
    (older,), (newer,) = (read_spares(story.pods[name].annotations) for name in ("m0", "l0"))
    record = dump_spares([replace(older, uid=newer.uid)])
    story.pods |= {name: annotated(story.pods[name], {names.SPARES: record}) for name in ("l0", "l1")}
    play(story, f"lead {order} | at_once")
    (kept,) = story.life.machine.reservations.all()
    assert kept.group is not None
    assert kept.group.name == "later"


@pytest.mark.parametrize("text", ["[", "[{}]", '{"v":1}'])
def test_a_record_that_cannot_be_read_reserves_nothing(life: Life, text: str) -> None:
    life.nodes("n1", labels={"rack": "r1"})
    member = changed(life.member("m", GROUP), spec={"nodeName": "n1"})
    life.see(annotated(member, {names.SPARES: text}))
    assert life.machine.reservations.all() == []


def test_spares_are_on_the_groups_rails(life: Life) -> None:
    """Each node has two networks; members and spare have VFs of one."""
    group = '{"name":"train","min":2,"rails":"same","spares":1}'
    for name in ("n1", "n2", "n3"):
        life.show_node(name, *(life.make_pf(index, vfs=2, network=f"rail{index}") for index in range(2)))
    life.members(2, group, request=[{}])
    found = binds(life.work())
    rooms = [room for one in life.machine.reservations.all() for room in one.rooms.values()]
    networks = {
        vf.network
        for one in (*(bind.assigned for bind in found), *rooms)
        if one.assignment is not None
        for vf in one.assignment.vfs
    }
    assert (len(found), len(rooms), len(networks)) == (2, 1, 1)


def test_spares_count_for_the_share_of_their_namespace(life: Life) -> None:
    """A namespace may hold half of four VFs: its group's spare has them."""
    group = '{"name":"train","min":1,"spares":1}'
    for name in ("n1", "n2"):
        life.show_node(name, life.make_pf(vfs=4, access=Access(max_share=50)))
    life.place(life.member("m0", group))
    life.see(life.make_pod("own", [{}]))
    assert binds(life.work()) == []
    life.see(changed(life.make_pod("foreign", [{}]), metadata={"namespace": "other"}))
    assert len(binds(life.work())) == 1
