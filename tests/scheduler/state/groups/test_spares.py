"""Room for spare members: kept with exact VFs while the group runs, and used by a member that is made again."""

from dataclasses import replace

import pytest

from mooring import names
from mooring.annotations.pf_terms import Access
from mooring.annotations.spares import dump_spares, read_spares
from tests.scheduler.conftest import MakeScene
from tests.scheduler.group_life import Life, annotated, binds, changed
from tests.scheduler.group_scene import LEADER, GroupScene
from tests.scheduler.story import play, stories

GROUP = "group train-0..1 within=rack spares=1"
LESS = 'annotation={"name":"train","min":2,"within":"rack","spares":0}'
NODES = "nodes n1..3 rack=r1"
# The group has n1 and n2 of a rack of three nodes, and the spare n3.
START = f"{NODES} | {GROUP} | wait 0 > train-0..1 | on n1 n2"
ROLES = "name=ray role_from=role roles=head:1,worker:2 spares=1"
HEAD = f"group head-0 {ROLES} labels=role:head vfs=0"
OTHER = "come other vfs=1"
URGENT = "come urgent priority=9 vfs=1 | wait 0 > urgent"


class Spares(GroupScene):
    """A scene with the records of spares."""

    def recorded(self, pod: str) -> None:
        """Expect that a pod's Binding has recorded the room that is kept for spares."""
        assert read_spares(self.pods[pod].annotations) == tuple(room.assignment for room in self.rooms)

    def no_record(self) -> None:
        """Expect that nothing is known of any spares."""
        assert self.machine.group_scheduling.spares._times == {}


@pytest.fixture
def scene(make_scene: MakeScene) -> Spares:
    return make_scene(Spares)


@stories(
    {
        "is not given to others, unless their priority is higher": f"""
            {START} | {OTHER} | wait 0 | kept :n3 | kept_vfs 2 | {URGENT}""",
        "is used by a member that is made again": f"""
            {START} | come other | wait 0 | lose n1 | delete train-0 | come again group=train | wait 0 > again | on
            n3""",
        "stays when a member leaves": f"{START} | delete train-0 | wait 2 | kept :n3",
        "is released with the last member": f"{START} | delete train-0..1 | {OTHER} | wait 2 > other | kept",
        "is released once all ask for less": f"""
            {START} | change train-0 {LESS} | wait 1 | kept :n3 | change train-1 {LESS} | wait 1 | kept | {OTHER} | wait
            0 > other""",
        "is released when a VF of it is taken": f"{START} | {URGENT} | {OTHER} | wait 2 > other | kept",
        "stays while a more important pod waits for its node, and goes elsewhere": f"""
            nodes n1 n2 rack=r1 | nodes n3 vfs=4 rack=r1 | {GROUP} | wait 0 > train-0..1 | kept :n3 | put low | come
            urgent vfs=4 priority=9 | wait 0 | victims low | kept :n3 urgent:n3 | nodes n4 vfs=4 | wait 15 > urgent |
            kept :n3""",
        "stays on the other nodes when one is lost": f"""
            {NODES} | nodes n4 rack=r1 | {GROUP.replace("spares=1", "spares=2")} | wait 0 > train-0..1 | kept :n3 :n4 |
            lose n3 | kept :n4""",
        # It decides nothing for weeks, and only receives events.
        "is released by a standby": f"""
            {START} | come other@n1 vfs=0 | lead | kept :n3 | delete train-0..1 | later 2 | delete other | kept |
            no_record""",
        "has no record longer than its group": f"{START} | lose n3 | delete train-0..1 | wait 1 | no_record",
        "is not kept by a new leader if a member was made again there, by the newest record": f"""
            {START} | later 1h | lose n1 | delete train-0 | come again group=train | wait 0 > again | nodes n1 rack=r1 |
            LEADER | kept""",
        "is necessary for a start": f"""
            nodes n1 n2 rack=r1 | {GROUP} | wait 0 | told train-0..1: group train: 2 of 3 members fit in rack 'r1', the
            best domain: 0/2 nodes are available for the 3rd member: 2 not enough free RDMA VFs. The members include 1
            spare. | nodes n3 rack=r1 | wait 15 > train-0..1""",
        "is not necessary for a start if the group could preempt a pod there": f"""
            {NODES} | come on-n1@n1 | {GROUP} priority=9 | wait 0 | victims | wait 2 > train-0..1 | victims""",
        # A member that is made again evicts the pod.
        "evicts nobody": f"""
            {NODES} | come on-n1@n1 on-n2@n2 on-n3@n3 | {GROUP} priority=9 | wait 0 | victims on-n2 on-n3 | delete on-n2
            on-n3 | wait 2 > train-0..1 | on n2 n3 | kept | lose train-0 | delete train-0 | come again group=train |
            wait 2 | victims on-n1""",
        # The member was deleted while no scheduler ran.
        "is recorded with each Binding, and kept by a new leader without the lost member": f"""
            {START} | kept :n3 | recorded train-0 | recorded train-1 | LOST""",
        # A head without VFs comes first; it is made again, and the workers' spare stays.
        "is as large as the largest member": f"""
            nodes n1..3 | {HEAD} | group worker-0..1 {ROLES} labels=role:worker | wait 0 > head-0 worker-0..1 | kept :n3
            | kept_vfs 2 | delete head-0 | {HEAD} | wait 0 > head-0 | recorded head-0 | delete head-0 | {HEAD} | wait 0
            > head-0 | recorded head-0 | kept_vfs 2 | LEADER | kept :n3 | recorded head-0""",
        "needs what a worker needs, also if only the head has the newest record": f"""
            nodes n1..3 | {HEAD} cpu=1 | group worker-0..1 {ROLES} labels=role:worker cpu=6 | wait 0 > head-0
            worker-0..1 | delete head-0 | {HEAD} cpu=1 | wait 0 > head-0 | LEADER | come other vfs=0 cpu=3 | wait 0 |
            kept :n3""",
    },
    LEADER=LEADER,
    LOST={
        f"train-{lost}": f"""
            delete train-{lost} | lead | wait 0 | kept :n3 | recorded train-{1 - lost} | come o-0..1 | wait 0 > o-0 |
            on n{lost + 1}"""
        for lost in (0, 1)
    },
)
def test_room_for_a_spare(scene: Spares, story: str) -> None:
    play(scene, story)


@pytest.mark.parametrize("order", ["", "backwards"])
def test_of_two_records_with_one_vf_a_new_leader_keeps_the_newer(scene: Spares, order: str) -> None:
    """An earlier leader had lost the room of one group, and given it to the other."""
    play(scene, f"{START} | later 1h | nodes n4..6 rack=r2 | {GROUP.replace('train', 'newer')} | wait 0 > newer-0..1")
    (older,), (newer,) = (read_spares(scene.pods[name].annotations) for name in ("train-0", "newer-0"))
    record = dump_spares([replace(older, uid=newer.uid)])
    scene.pods |= {name: annotated(scene.pods[name], {names.SPARES: record}) for name in ("newer-0", "newer-1")}
    play(scene, f"lead {order} | wait 0")
    (kept,) = scene.machine.reservations.all()
    assert kept.group is not None
    assert kept.group.name == "newer"


def test_a_running_member_that_names_another_group_takes_the_room_of_spares_with_it(scene: Spares) -> None:
    """One room has one owner, also until the next tick."""
    play(scene, f"""{START} | kept :n3 | change train-0 annotation={{"name":"other","min":1,"spares":1}} | kept :n3""")
    (reservation,) = scene.machine.reservations.all()
    assert reservation.group is not None
    assert reservation.group.name == "other"


def test_a_record_of_spares_that_differ_from_the_members_reserves_nothing(scene: Spares) -> None:
    """Anybody may write it who may create a pod on a node: the room of whole nodes would be out of reach."""
    play(scene, f"{START} | kept :n3")
    (spare,) = read_spares(scene.pods["train-0"].annotations)
    record = dump_spares([replace(spare, vfs=spare.vfs[:1])])
    scene.pods |= {name: annotated(pod, {names.SPARES: record}) for name, pod in scene.pods.items()}
    play(scene, "lead | wait 0 | no_record")


@pytest.mark.parametrize("text", ["[", "[{}]", '{"v":1}'])
def test_a_record_that_cannot_be_read_reserves_nothing(life: Life, text: str) -> None:
    life.nodes("n1", labels={"rack": "r1"})
    group = '{"name":"train","min":2,"spares":1}'
    member = changed(life.member("m", group), spec={"nodeName": "n1"})
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
