"""Groups through the machine: all of what is needed is placed in one decision, or nothing."""

from mooring import names
from tests.scheduler.group_life import HINT, Life, binds, told
from tests.scheduler.state.groups.group_story import GroupStory
from tests.scheduler.story import play, stories

NO_VFS = "not enough free RDMA VFs."
DUES = [(1, 1), (3, 2), (7, 4), (15, 8), (25, 10), (35, 10)]
LEFT_OVER = f"group train: enough members are placed, but this one is not: 0/4 nodes are available: 4 {NO_VFS}"


FAILURES = [f"decide m0..2 | refuse forbidden m0..2 | due {due} | later {s}" for due, s in DUES]


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
            nodes n1 n2 | come m0..3 | at_once
            | told m0..3: group train: 2 of 3 members fit: 0/2 nodes are available for the 3rd member: 2 {NO_VFS}
            | alone other | at_once other | nodes n3 n4 | later 1 | at_once m0..2""",
        "an incomplete group waits without a try, and is told so once, when it is quiet": f"""
            nodes n1..3 | come m0 m1 | idle | due 3 | later 3 | at_once
            | told m0 m1: group train: 2 of at least 3 members exist ({HINT}) | later 100 | idle | come m2
            | at_once m0..2""",
        "beyond min as many are bound as fit, and the others follow": f"""
            nodes n1..4 | come m0..5 | at_once m0..3 | told m4 m5: {LEFT_OVER} | come late | later 1 | at_once
            | told late: {LEFT_OVER} | nodes n5..7 | later 2 | at_once m4 m5 late""",
        "two groups do not share a cluster that holds one of them": """
            nodes n1..3 | of a 3 | come a0 | of b 3 | come b0 b1 | of a 3 | come a1 | of b 3 | come b2 | of a 3
            | come a2 | at_once a0..2 | delete a0..2 | later 1 | at_once b0..2""",
        "members that differ are refused alike": """
            nodes n1..3 | come m0 m1 | of train 2 | come m2 | later 3 | at_once
            | told m0 m1 m2: group train: waiting members differ in annotation 'mooring.dev/group'.min: 2, 3""",
        "a succeeded member that a list does not have any more does not count": """
            nodes n1..3 | come a@n1 b | succeed b | list_without b | come c | at_once""",
        "members that name another scheduler keep the group waiting": """
            of mixed 1 | come m0 | spec schedulerName=other | come m1 | later 3 | at_once
            | told m0: group mixed: waiting members that name another scheduler: 1""",
        # Those that succeeded count for pods of their controller.
        "gated and failed members do not count": """
            nodes n1..4 | come a b | spec schedulingGates=[{"name":"g"}] | come gated | spec schedulingGates=[]
            | owned_by other | come done@n1 | succeed done | owned_by | come bad@n1 | fail bad | at_once | later 3
            | at_once | told a b: group train: 2 of at least 3 members exist, 1 with scheduling gates, 1 succeeded
            under another controller (not counted) | come c | at_once a b c | succeed a b | come late | at_once late""",
        # The first of those that are left over is named in the message, and is not the only one to come again.
        "what can help any of those that are left over brings it back": """
            nodes n1 | request 0 | of train 1 | come m0 | cpu 100 | come m1 | cpu 8
            | spec nodeSelector={"rack":"fast"} | come m2 | at_once m0 | told m1 m2: group train: enough members are
            placed, but m1 is not: 0/1 nodes are available: 1 Insufficient cpu. | rack fast | cpu 9 | nodes n1
            | later 10 | at_once m2""",
        # In the order of their indexes the small one would take a part of the room that only the large one needs.
        "members of different sizes are placed in more than one order": """
            nodes n1 | cpu 4 | nodes n2 | request 0 | of train 2 | cpu 3 | come m0 | cpu 8 | come m1 | at_once m0 m1""",
        # The one with VFs, which is tried first, takes cpu of the only node with enough for the other one.
        "the members' own order is one of them": """
            nodes n1 | cpu 4 | nodes n2 | request 0 | of train 2 | cpu 8 | come m0 | request 2 | cpu 1 | come m1
            | at_once m0 m1""",
        "a waiting member may change its group": """
            nodes n1:10 | request 1 | spec nodeSelector={"no":"where"} | of a 2 | come m0 m1 | at_once | of b 1
            | join m0 | at_once""",
        # One second, two, four, up to ten, as a pod does.
        "a group whose Bindings fail again and again comes ever later": f"""
            nodes n1..3 | come m0..2 | {" | ".join(FAILURES)}""",
    }
)
def test_enough_members_start_together_or_none(life: Life, story: str) -> None:
    play(GroupStory(life), story)


@stories(
    {
        "comes before an older pod": "nodes n1..3 | come a@n1 b@n2 | alone older | later 1 | come rest | at_once rest",
        "is told that the group cannot be completed": f"""
            nodes n1 n2 | come a@n1 b@n2 rest | at_once | told rest: group train: 2 of at least 3 members are placed,
            and 0 of 1 others fit: 0/2 nodes are available for the 1st member: 2 {NO_VFS}""",
        "is told some of the pods that block it, neither members nor pods without VFs": f"""
            nodes n0..6 | come a@n0 b@n1 | alone o2@n2 o3@n3 o4@n4 o5@n5 o6@n6 | request 0 | alone plain@n2
            | request 2 | come rest | at_once | told rest: group train: 2 of at least 3 members are placed, and 0 of 1
            others fit: 0/7 nodes are available for the 1st member: 7 {NO_VFS} Blocked by: default/o2 on n2,
            default/o3 on n3, default/o4 on n4, 2 more.""",
        # At once, as long as its room is free; if it is refused again, after a while.
        "comes before others after a refused Binding": f"""
            nodes n1..3 | come m0..2 | decide m0..2 | carry_out m1 m2 | refuse forbidden m0 | alone other | decide m0
            | told m0: binding forbidden: why / other: 0/3 nodes are available: 3 {NO_VFS}... | later 0.2
            | refuse forbidden m0 | at_once | later 0.8 | decide m0""",
    }
)
def test_the_rest_of_a_group_that_is_half_bound(life: Life, story: str) -> None:
    play(GroupStory(life), story)


NO_POD_GROUP = "group train: its PodGroup ({}) does not exist, or the API server does not serve that API"
ONE_OF_TWO = "group train: 1 of at least 2 members exist"
KEY = "leaderworkerset.sigs.k8s.io/group-key"
BY_LABEL = f'name annotation={{"name_from":"{KEY}","min":2}}'


@stories(
    {
        "a PodGroup of the cluster's API may come late": f"""
            nodes n1 n2 | name spec=train | come m0 m1 | coscheduling train 2 | at_once | later 3 | at_once
            | told m0 m1: {NO_POD_GROUP.format("scheduling.k8s.io")} | pod_group train 2 | at_once m0 m1""",
        "a PodGroup of scheduler-plugins may come late": f"""
            nodes n1 n2 | name label=train | come m0 m1 | pod_group train 2 | at_once | later 3 | at_once
            | told m0 m1: {NO_POD_GROUP.format("scheduling.x-k8s.io")} | coscheduling train 2 | at_once m0 m1""",
        "two PodGroups of one name are two groups": f"""
            nodes n1..4 | pod_group train 3 | coscheduling train 2 | name spec=train | come own0 own1
            | name label=train | come other0 | later 3 | at_once
            | told own0 own1: group train: 2 of at least 3 members exist ({HINT}) / other0: {ONE_OF_TWO} ({HINT})
            | name spec=train label=train | come both | at_once
            | refused both: belongs to two PodGroups: 'train' by spec.schedulingGroup, and 'train' by label
            | name label=train | come other1 | at_once other0 other1""",
        "a member that names two PodGroups contradicts nobody": """
            nodes n1 n2 | pod_group train 2 | name spec=train label=other | come both
            | name spec=train annotation={"min":2,"rails":"same"} | come m0 m1 | at_once m0 m1""",
        "others are told of a member that names a second PodGroup": f"""
            nodes n1 n2 | pod_group train 2 | name spec=train | come m0 | name spec=train label=other | come m1
            | bound | told m0: {ONE_OF_TWO}, 1 rejected as invalid
            | refused m1: 'train' by spec.schedulingGroup, and 'other' by""",
        "others are told of a member that names a second group": f"""
            nodes n1 n2 | pod_group train 2 | name spec=train | come m0
            | name spec=train annotation={{"name":"other"}} | come m1 | bound
            | told m0: {ONE_OF_TWO}, 1 rejected as invalid
            | refused m1: 'other' is not the name of the pod's PodGroup, 'train'""",
        "each replica that a label names starts on its own": f"""
            nodes n1..3 | {BY_LABEL} {KEY}=a | come a0 a1 | {BY_LABEL} {KEY}=b | come b0 b1 | at_once a0 a1 | nodes n4
            | later 15 | at_once b0 b1""",
        "a pod whose label comes late joins then": f"""
            nodes n1 n2 | {BY_LABEL} {KEY}=a | come first | {BY_LABEL} | come late | at_once
            | refused late: annotation 'mooring.dev/group'.name_from: label '{KEY}' of the pod is missing or empty
            | label late {KEY}=a | bound first late""",
    }
)
def test_a_member_names_its_group_by_a_pod_group_or_an_annotation(life: Life, story: str) -> None:
    play(GroupStory(life), story)
