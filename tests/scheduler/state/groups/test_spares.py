"""Room for spare members: kept with exact VFs while the group runs, and used by a member that is made again."""

from dataclasses import replace
from typing import Any

import pytest

from mooring import names
from mooring.annotations.pf_terms import Access
from mooring.annotations.spares import dump_spares, read_spares
from scheduler.kube.objects import Pod
from tests.scheduler.group_life import Life, annotated, binds, changed, fill, told, victims

GROUP = '{"name":"train","min":2,"within":"rack","spares":1}'


def _rack(life: Life, *nodes: str) -> None:
    life.nodes(*(nodes or ("n1", "n2", "n3")), labels={"rack": "r1"})


def _start(life: Life) -> list[Pod]:
    """Let a group of two start in a rack of three nodes."""
    _rack(life)
    bound = life.place(*(life.member(f"m{number}", GROUP) for number in range(2)))
    assert len(bound) == 2
    return bound


def _replaced(life: Life, lost: Pod, **fields: Any) -> None:
    """Let a member be lost with its node, and be made again."""
    life.remove_node(str(lost.spec.node_name))
    life.gone(lost)
    life.see(life.member("again", GROUP, **fields))


def _new_leader(life: Life, *pods: Pod) -> Life:
    """Return another scheduler, which is shown the same nodes and these pods."""
    new = life.successor()
    _rack(new, *(node for node in life.machine.cache.node_names()))
    new.see(*pods)
    return new


def _scheduled(pod: Pod, hour: int) -> Pod:
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": f"2026-11-29T{hour}:00:00Z"}
    return changed(pod, status={"conditions": [condition]})


def _free_node(bound: list[Pod]) -> str:
    (node,) = {"n1", "n2", "n3"} - {pod.spec.node_name for pod in bound}
    return str(node)


def test_room_for_a_spare_is_not_given_to_others(life: Life) -> None:
    bound = _start(life)
    life.see(life.make_pod("other", [{}]))
    assert binds(life.work()) == []
    (room,) = life.machine.reservations.on(_free_node(bound))
    assert room.assignment is not None
    assert len(room.assignment.vfs) == 2
    life.see(life.make_pod("urgent", [{}], spec={"priority": 9}))
    assert len(binds(life.work())) == 1


def test_a_lost_member_is_replaced_in_that_room_at_once(life: Life) -> None:
    bound = _start(life)
    life.see(life.make_pod("other", [{}, {}]))
    life.work()
    _replaced(life, bound[0])
    (bind,) = binds(life.work())
    assert (bind.pod_info.pod.metadata.name, bind.assigned.node) == ("again", _free_node(bound))


def test_a_group_starts_only_with_room_for_its_spares(life: Life) -> None:
    _rack(life, "n1", "n2")
    life.members(2, GROUP)
    found = life.work()
    assert binds(found) == []
    assert all("2 of 3 members fit" in one and "The members include 1 spare." in one for one in told(found).values())
    _rack(life, "n3")
    assert len(binds(life.work(15.0))) == 2


def test_nobody_is_evicted_for_a_spare(life: Life) -> None:
    """Two pods leave for the two members; a lost member evicts the third when it is made again."""
    low = fill(life, "n1", "n2", "n3")
    _rack(life)
    life.members(2, GROUP, spec={"priority": 9})
    names_of_victims = victims(life.work())
    assert len(names_of_victims) == 2
    life.gone(*(pod for pod in low if pod.metadata.name in names_of_victims))
    bound = life.bound(*binds(life.work(2.0)))
    assert len(bound) == 2
    assert life.machine.reservations.all() == []
    _replaced(life, bound[0], spec={"priority": 9})
    assert len(victims(life.work(2.0))) == 1


def test_a_group_does_not_wait_for_room_of_its_spare_that_it_could_preempt(life: Life) -> None:
    fill(life, "n1")
    _rack(life)
    life.members(2, GROUP, spec={"priority": 9})
    found = life.work() + life.work(2.0)
    assert (len(binds(found)), victims(found)) == (2, [])


@pytest.mark.parametrize("how", ["no member is left", "all ask for less", "a VF of it is taken"])
def test_the_room_is_released(life: Life, how: str) -> None:
    bound = _start(life)
    if how == "no member is left":
        life.gone(*bound)
    elif how == "all ask for less":
        for pod in bound:
            assert len(life.machine.reservations.all()) == 1
            life.see(annotated(pod, {names.GROUP: GROUP.replace('"spares":1', '"spares":0')}))
            life.work(1.0)
    else:
        assert len(life.place(life.make_pod("urgent", [{}], spec={"priority": 9}))) == 1
    life.see(life.make_pod("other", [{}]))
    assert len(binds(life.work(2.0))) == 1
    assert life.machine.reservations.all() == []


@pytest.mark.parametrize("lost", [0, 1])
def test_each_binding_records_the_spares_and_a_new_leader_keeps_them_without_the_lost_member(
    life: Life, lost: int
) -> None:
    """The member was deleted while no scheduler ran."""
    bound = _start(life)
    records = [read_spares(pod.annotations) for pod in bound]
    assert records[0] == records[1]
    assert [assignment.node for assignment in records[0]] == [_free_node(bound)]
    new = _new_leader(life, bound[1 - lost])
    new.work()
    (room,) = new.machine.reservations.on(_free_node(bound))
    assert room.assignment == records[0][0]
    new.see(*(new.make_pod(name, [{}, {}]) for name in ("other", "another")))
    (bind,) = binds(new.work())
    assert bind.assigned.node == bound[lost].spec.node_name


def test_a_new_leader_reads_the_newest_record(life: Life) -> None:
    """A member was made again in the room of the spare, and no other room was left."""
    bound = _start(life)
    _replaced(life, bound[0])
    (again,) = life.bound(*binds(life.work()))
    later = _scheduled(again, 10)
    _rack(life)
    for order in ([bound[1], later], [later, bound[1]]):
        assert _new_leader(life, *order).machine.reservations.all() == []


def test_of_two_records_with_one_vf_a_new_leader_keeps_the_newer(life: Life) -> None:
    """An earlier leader had lost the room of one group, and given it to the other."""
    older = _start(life)
    (spare,) = read_spares(older[0].annotations)
    life.nodes("n4", "n5", "n6", labels={"rack": "r2"})
    newer = life.place(*(life.member(f"l{number}", GROUP.replace("train", "later")) for number in range(2)))
    (other,) = read_spares(newer[0].annotations)
    record = {names.SPARES: dump_spares([replace(spare, uid=other.uid)])}
    pods = [_scheduled(pod, 10) for pod in older] + [_scheduled(annotated(pod, record), 11) for pod in newer]
    for order in (pods, pods[::-1]):
        new = _new_leader(life, *order)
        new.work()
        (kept,) = new.machine.reservations.all()
        assert kept.group is not None
        assert kept.group.name == "later"


def test_no_record_outlives_its_group(life: Life) -> None:
    bound = _start(life)
    life.remove_node(_free_node(bound))
    life.gone(*bound)
    life.work(1.0)
    assert life.machine.group_scheduling.spares._times == {}


def test_a_standby_keeps_no_room_of_groups_that_are_gone(life: Life) -> None:
    """It decides nothing for weeks, and only receives events."""
    bound = _start(life)
    other = life.make_pod("other", [], node="n1")
    standby = _new_leader(life, *bound, other)
    assert len(standby.machine.reservations.all()) == 1
    standby.gone(*bound)
    standby.now += 2.0
    standby.gone(other)
    assert standby.machine.reservations.all() == []
    assert standby.machine.group_scheduling.spares._times == {}


@pytest.mark.parametrize("text", ["[", "[{}]", '{"v":1}'])
def test_a_record_that_cannot_be_read_reserves_nothing(life: Life, text: str) -> None:
    _rack(life, "n1")
    member = changed(life.member("m", GROUP), spec={"nodeName": "n1"})
    life.see(annotated(member, {names.SPARES: text}))
    assert life.machine.reservations.all() == []


def test_without_spares_nothing_is_written(life: Life) -> None:
    life.nodes("n1", "n2")
    life.members(2, '{"name":"train","min":2}')
    assert all(names.SPARES not in bind.annotations for bind in binds(life.work()))


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


def test_spares_are_as_large_as_the_largest_member(life: Life) -> None:
    """A head without VFs comes first; it is made again, and the workers' spare stays."""
    group = '{"name":"ray","role_from":"role","roles":{"head":1,"worker":2},"spares":1}'
    life.nodes("n1", "n2", "n3")

    def member(role: str, name: str) -> Pod:
        request: list[dict[str, str]] = [{}, {}] if role == "worker" else []
        return life.member(name, group, request=request, metadata={"labels": {"role": role}})

    life.see(member("head", "a"), member("worker", "b"), member("worker", "c"))
    head, *workers = sorted(life.bound(*binds(life.work())), key=lambda pod: pod.metadata.name)
    (free,) = {"n1", "n2", "n3"} - {pod.spec.node_name for pod in workers}
    (kept,) = life.machine.reservations.on(str(free))
    assert kept.assignment is not None
    assert len(kept.assignment.vfs) == 2
    for _ in range(2):
        life.gone(head)
        life.see(member("head", "a"))
        (head,) = life.bound(*binds(life.work()))
        assert read_spares(head.annotations) == (kept.assignment,)
    for pods in ([head, *workers], [*workers, head]):
        new = life.successor()
        new.nodes("n1", "n2", "n3")
        new.see(*pods)
        assert [one.assignment for one in new.machine.reservations.on(str(free))] == [kept.assignment]


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
