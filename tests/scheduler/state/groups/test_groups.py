"""Groups through the machine: all of what is needed is placed in one decision, or nothing."""

from mooring import names
from mooring.names import POD_GROUP_LABEL
from tests.scheduler.group_life import HINT, Life, binds, told
from tests.scheduler.group_scene import GroupScene
from tests.scheduler.story import play, stories

NO_VFS = "not enough free RDMA VFs."
LEFT_OVER = f"group train: enough members are placed, but this one is not: 0/4 nodes are available: 4 {NO_VFS}"


# One second, two, four, up to ten, as a pod does.
FAILURES = " | ".join(
    f"decide {wait} > train-0..2 | answer forbidden | due > {due}"
    for wait, due in ((0, 1), (1, 3), (2, 7), (4, 15), (8, 25), (10, 35))
)


def test_a_group_that_fits_is_bound_at_once(life: Life) -> None:
    life.nodes("n1", "n2", "n3")
    life.members(3)
    instructions = life.work()
    assert sorted(one.assigned.node for one in binds(instructions)) == ["n1", "n2", "n3"]
    assert all(names.ASSIGNMENT in one.annotations for one in binds(instructions))
    assert all(names.SPARES not in one.annotations for one in binds(instructions))
    assert told(instructions) == {}


@stories(
    {
        "too few fit: nobody is bound, nothing is reserved, and all are told the same": f"""
            nodes n1 n2 | group train-0..3 min=3 | wait 0 | told train-0..3: group train: 2 of 3 members fit: 0/2 nodes
            are available for the 3rd member: 2 {NO_VFS} | come other | wait 0 > other | nodes n3 n4 | wait 1 >
            train-0..2""",
        "an incomplete group waits without a try, and is told so once, when it is quiet": f"""
            nodes n1..3 | group train-0..1 min=3 | quiet 0 | due > 3 | wait 3 | told train-0..1: group train: 2 of at
            least 3 members exist ({HINT}) | quiet 100 | come train-2 group=train | wait 0 > train-0..2""",
        "beyond min as many are bound as fit, and the others follow": f"""
            nodes n1..4 | group train-0..5 min=3 | wait 0 > train-0..3 | told train-4..5: {LEFT_OVER} | come train-6
            group=train | wait 1 | told train-6: {LEFT_OVER} | nodes n5..7 | wait 2 > train-4..6""",
        "two groups do not share a cluster that holds one of them": """
            nodes n1..3 | group a-0 min=3 | group b-0..1 min=3 | come a-1 group=a | come b-2 group=b | come a-2 group=a
            | wait 0 > a-0..2 | delete a-0..2 | wait 1 > b-0..2""",
        "members that differ are refused alike": """
            nodes n1..3 | group train-0..1 min=3 | group train-2 min=2 | wait 3 | told train-0..2: group train: waiting
            members differ in annotation 'mooring.dev/group'.min: 2, 3""",
        "a succeeded member that a list does not have any more does not count": """
            nodes n1..3 | group train-0@n1 min=3 | come train-1 group=train | phase Succeeded train-0 | unlist train-0
            | come train-2 group=train | wait 0""",
        "members that name another scheduler keep the group waiting": """
            group mixed-0 | come mixed-1 group=mixed schedulerName=other | wait 3 | told mixed-0: group mixed: waiting
            members that name another scheduler: 1""",
        # Those that succeeded count for pods of their controller.
        "gated and failed members do not count": """
            nodes n1..4 | group train-0..1 min=3 | come gated group=train gates=g | come done@n1 group=train owner=j |
            phase Succeeded done | come bad@n1 group=train | phase Failed bad | wait 0 | wait 3 | told train-0..1: group
            train: 2 of at least 3 members exist, 1 with scheduling gates, 1 succeeded under another controller (not
            counted) | come train-2 group=train | wait 0 > train-0..2 | phase Succeeded train-0..1 | come late
            group=train | wait 0 > late""",
        # The first of those that are left over is named in the message, and is not the only one to come again.
        "what can help any of those that are left over brings it back": """
            nodes n1 | group train-0 vfs=0 | come train-1 group=train cpu=100 | come train-2 group=train cpu=8
            nodeSelector=rack:fast | wait 0 > train-0 | told train-1..2: group train: enough members are placed, but
            train-1 is not: 0/1 nodes are available: 1 Insufficient cpu. | nodes n1 cpu=9 rack=fast | wait 10 >
            train-2""",
        # In the order of their indexes the small one would take a part of the room that only the large one needs.
        "members of different sizes are placed in more than one order": """
            nodes n1 | nodes n2 cpu=4 | group train-0 min=2 vfs=0 cpu=3 | come train-1 group=train cpu=8 | wait 0 >
            train-0..1""",
        # The one with VFs, which is tried first, takes cpu of the only node with enough for the other one.
        "the members' own order is one of them": """
            nodes n1 | nodes n2 cpu=4 | group train-0 min=2 vfs=0 cpu=8 | come train-1 group=train vfs=2 cpu=1 | wait 0
            > train-0..1""",
        "a waiting member may change its group": """
            nodes n1 vfs=10 | group a-0..1 vfs=1 nodeSelector=no:where | wait 0 | change a-0
            annotation={"name":"b","min":1} | wait 0""",
        "a group whose Bindings fail again and again comes ever later, until one succeeds": f"""
            nodes n1..3 | group train-0..2 | {FAILURES} | decide 10 > train-0..2 | answer bound train-0 | answer
            forbidden | decide > train-1..2""",
    }
)
def test_enough_members_start_together_or_none(scene: GroupScene, story: str) -> None:
    play(scene, story)


@stories(
    {
        "comes before an older pod": """
            nodes n1..3 | group train-0@n1 train-1@n2 min=3 | come older | come train-2 group=train | wait 0 >
            train-2""",
        "is told that the group cannot be completed": f"""
            nodes n1 n2 | group train-0@n1 train-1@n2 train-2 | wait 0 | told train-2: group train: 2 of at least 3
            members are placed, and 0 of 1 others fit: 0/2 nodes are available for the 1st member: 2 {NO_VFS}""",
        "is told some of the pods that block it, neither members nor pods without VFs": f"""
            nodes n0..6 | group train-0@n0 train-1@n1 min=3 | come o2@n2 o3@n3 o4@n4 o5@n5 o6@n6 | come plain@n2 vfs=0 |
            come train-2 group=train | wait 0 | told train-2: group train: 2 of at least 3 members are placed, and 0 of
            1 others fit: 0/7 nodes are available for the 1st member: 7 {NO_VFS} Blocked by: default/o2 on n2,
            default/o3 on n3, default/o4 on n4, 2 more.""",
        "is told no pods if none that leaves would help": """
            nodes n0..2 | group train-0@n0 train-1@n1 min=3 | come other@n2 | come train-2 group=train
            nodeSelector=rack:r | wait 0 | told train-2: group train: 2 of at least 3 members are placed, and 0 of 1
            others fit: 0/3 nodes are available for the 1st member: 3 node(s) didn't match Pod's node
            affinity/selector.""",
        # At once, as long as its room is free; if it is refused again, after a while.
        "comes before others after a refused Binding": f"""
            nodes n1..3 | group train-0..2 | decide > train-0..2 | answer bound train-1..2 | answer forbidden train-0 |
            come other | decide > train-0 | told train-0: binding forbidden: why / other: 0/3 nodes are available: 3
            {NO_VFS}... | later 0.2 | answer forbidden train-0 | wait 0 | decide 0.8 > train-0""",
    }
)
def test_the_rest_of_a_group_that_is_half_bound(scene: GroupScene, story: str) -> None:
    play(scene, story)


NO_POD_GROUP = "group train: its PodGroup ({}) does not exist, or the API server does not serve that API"
ONE_OF_TWO = "group train: 1 of at least 2 members exist"
KEY = "leaderworkerset.sigs.k8s.io/group-key"


@stories(
    {
        "a PodGroup of the cluster's API may come late": f"""
            nodes n1 n2 | group train-0..1 kind=PodGroup | coscheduling train 2 | wait 0 | wait 3 | told train-0..1:
            {NO_POD_GROUP.format("scheduling.k8s.io")} | gang train 2 | wait 0 > train-0..1""",
        "a PodGroup of scheduler-plugins may come late": f"""
            nodes n1 n2 | group train-0..1 kind=label | gang train 2 | wait 0 | wait 3 | told train-0..1:
            {NO_POD_GROUP.format("scheduling.x-k8s.io")} | coscheduling train 2 | wait 0 > train-0..1""",
        "two PodGroups of one name are two groups": f"""
            nodes n1..4 | gang train 3 | coscheduling train 2 | group own-0..1 name=train kind=PodGroup | group other-0
            name=train kind=label | wait 3 | told own-0..1: group train: 2 of at least 3 members exist ({HINT}) /
            other-0: {ONE_OF_TWO} ({HINT}) | come both group=train pod_group=train | wait 0 | refused both: belongs to
            two PodGroups: 'train' by spec.schedulingGroup, and 'train' by label | come other-1 group=train | wait 0 >
            other-0..1""",
        "a member that names two PodGroups contradicts nobody": f"""
            nodes n1 n2 | gang train 2 | come both pod_group=train labels={POD_GROUP_LABEL}:other | come train-0..1
            pod_group=train annotation={{"min":2,"rails":"same"}} | wait 0 > train-0..1""",
        "others are told of a member that names a second PodGroup": f"""
            nodes n1 n2 | gang train 2 | group train-0 kind=PodGroup | come train-1 group=train
            labels={POD_GROUP_LABEL}:other | wait 5 | told train-0: {ONE_OF_TWO}, 1 rejected as invalid | refused
            train-1: 'train' by spec.schedulingGroup, and 'other' by""",
        "others are told of a member that names a second group": f"""
            nodes n1 n2 | gang train 2 | group train-0 kind=PodGroup | come train-1 group=train
            annotation={{"name":"other"}} | wait 5 | told train-0: {ONE_OF_TWO}, 1 rejected as invalid | refused
            train-1: 'other' is not the name of the pod's PodGroup, 'train'""",
        "each replica that a label names starts on its own": f"""
            nodes n1..3 | group a-0..1 name_from={KEY} labels={KEY}:a | group b-0..1 name_from={KEY} labels={KEY}:b |
            wait 0 > a-0..1 | nodes n4 | wait 15 > b-0..1""",
        "a pod whose label comes late joins then": f"""
            nodes n1 n2 | group a-0 min=2 name_from={KEY} labels={KEY}:a | come late group=a labels= | wait 0 | refused
            late: annotation 'mooring.dev/group'.name_from: label '{KEY}' of the pod is missing or empty | change late
            labels={KEY}:a | wait 5 > a-0 late""",
    }
)
def test_a_member_names_its_group_by_a_pod_group_or_an_annotation(scene: GroupScene, story: str) -> None:
    play(scene, story)
