"""Networks for some namespaces, and the share of each: what the scheduler decides, by whichever way a pod comes."""

import json
import re
from collections import Counter
from fnmatch import fnmatchcase
from random import Random
from typing import Any

import pytest

from mooring import names
from mooring.annotations.pf_terms import Access
from mooring.gpu.inventory import KEY, Gpu, GpuInventory, dump_gpu_inventory
from scheduler.constraints.kinds import Kinds
from scheduler.extender.extender_pods import Verdict
from scheduler.extender.wire_format import Victims
from scheduler.kube.objects import Pod
from scheduler.kube.outcomes import Refused
from scheduler.kube.pod_info import PodInfo
from scheduler.placement.gpus import gpu_kind
from scheduler.state.machine import Machine
from tests.scheduler.extender.scene import NOW, Scene
from tests.scheduler.group_life import Life, MakeNode, MakePf, MakePod, binds, orders, told
from tests.scheduler.story import play, stories

OF_A = Access(("team-a", "ml-*"))
HALF = Access(max_share=50, entry=0)
REFUSED = "network 'rail0' is for namespaces team-a, ml-*"


_PATH = ("0000:00:01.0",)
ENTRIES = {"a": OF_A, "half": HALF, "all": Access(), "rest": Access(max_share=50, entry=1), "only": Access(("team-a",))}
SHARE = re.compile(
    r"namespace '(.+)' has (\d+) VFs of networks? (.+) and requests (\d+) more; max_share 50 allows it (\d+)"
)


def node(life: Life, name: str, *access: Access, vfs: int = 4, **fields: Any) -> None:
    """Put a node with a PF of each access; the PFs have networks of their own."""
    pfs = tuple(
        life.make_pf(index, vfs, access=each, network=f"rail{index}", pcie=_PATH) for index, each in enumerate(access)
    )
    life.show_node(name, *pfs, **fields)


def pod_of(life: Life, namespace: str, name: str = "", request: object = ({},), **fields: Any) -> Pod:
    return life.make_pod(name, request, metadata={"namespace": namespace}, **fields)


def networks(pod: Pod) -> str:
    return ",".join(vf["network"] for vf in json.loads(pod.annotations[names.ASSIGNMENT])["vfs"])


class Tenants:
    """The verbs of the stories: nodes whose PFs are for some, and pods of several namespaces."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.pods: dict[str, Pod] = {}

    def offer(self, name: str, vfs: str, *entries: str) -> None:
        node(self.life, name, *(ENTRIES[entry] for entry in entries), vfs=int(vfs))

    def place(self, *pods: str, annotations: dict[str, str] | None = None, **spec: Any) -> str:
        """Let pods "namespace/name:VFs" come, and decide; return the victims, and each pod's networks or why it waits.

        It waits for VFs of others, or as in ``2+1>2``: it has 2 and requests 1 more, and the share is 2.
        """
        for text in pods:
            key, _, count = text.partition(":")
            namespace, _, name = key.partition("/")
            request = [{}] * int(count or 1) if count != "rail0" else [{"network": "rail0"}]
            self.pods[name] = pod_of(self.life, namespace, name, request, annotations=annotations or {}, spec=spec)
            self.life.see(self.pods[name])
        found = self.life.work(60)
        bound = {pod.metadata.name: pod for pod in self.life.bound(*binds(found))}
        self.pods |= bound
        answers = {name: networks(pod) for name, pod in bound.items()}
        answers |= {name: _short(text) for name, text in told(found).items()}
        victims = [f"-{one.pod.partition('/')[2]}" for order in orders(found) for one in order.victims]
        return " ".join(victims + [f"{name}={answer}" for name, answer in sorted(answers.items())])

    def pack(self, *pods: str) -> str:
        return self.place(*pods, annotations={names.PLACEMENT: '{"pfs":"pack"}'})

    def urgent(self, *pods: str) -> str:
        return self.place(*pods, priority=9)

    def group(self, fields: str, *pods: str) -> str:
        return self.place(*pods, annotations={names.GROUP: f'{{"name":"train",{fields}}}'})

    def delete(self, *pods: str) -> None:
        self.life.gone(*(self.pods[name] for name in pods))

    def forge(self, key: str, source: str) -> str:
        """Let a pod bring the assignment of another one with it."""
        text = self.pods[source].annotations[names.ASSIGNMENT]
        return self.place(key, annotations={names.ASSIGNMENT: text, names.RATES: "{}"})


def _short(text: str) -> str:
    if (share := SHARE.search(text)) is not None:
        namespace, has, of, more, most = share.groups()
        return f"{namespace}:{has}+{more}>{most}({of.replace(', ', ',')})"
    if "is for namespaces team-a" in text:
        return "others"
    if "3 of at least 4 members exist" in text:
        return "few"
    return "never" if "Preemption is not helpful" in text else text


STORIES = {
    # A pod that names no network gets one that it may use.
    "a pod gets VFs only of networks for its namespace": """
        offer n1 4 a | place team-b/b team-a-2/c default/d > b=others c=others d=others
        | place team-a/p ml-train/q > p=rail0 q=rail0 | delete b c d | offer n2 4 a all
        | place team-b/b:2 team-b/e:2 > b=rail1,rail1 e=rail1,rail1 | place team-b/f:rail0 > f=others""",
    # Over all PFs of the entry; what one may not have another may, and what it gives back it may have again.
    "no namespace holds more than its share of a node": """
        offer n1 4 half half | place team-a/a0:2 team-a/a1:2 team-a/a2:2
        > a0=rail0,rail0 a1=rail0,rail0 a2=team-a:4+2>4('rail0','rail1')
        | place team-b/b:4 > b=rail1,rail1,rail1,rail1 | delete a0 | place > a2=rail0,rail0""",
    # A packed pod would otherwise take all of them from one PF.
    "interfaces go to other entries where the share is used up": """
        offer n1 4 half all | pack team-a/a:6 > a=rail0,rail0,rail1,rail1,rail1,rail1""",
    # What another tenant loses gives this one nothing.
    "only pods of the same namespace are evicted for a share": """
        offer n1 8 half | place team-b/other team-a/own:4 > other=rail0 own=rail0,rail0,rail0,rail0
        | urgent team-a/high:2 > -own high=team-a:4+2>4('rail0') | delete high
        | urgent team-c/none:5 > none=never""",
    "nobody is evicted on a network of others": """
        offer n1 1 a | place team-a/a > a=rail0 | urgent team-b/b > b=others""",
    # One member could be placed, and the group's networks are counted by what the share leaves.
    "a group larger than its share is not begun": """
        offer n1 4 half | group "min":3,"rails":"same" team-a/a0 team-a/a1 team-a/a2
        > a0=team-a:2+1>2('rail0') a1=team-a:2+1>2('rail0') a2=team-a:2+1>2('rail0')""",
    # The scheduler writes its own, and counts none before the pod has a node.
    "an assignment that a pod brings with it gives it nothing": """
        offer n1 4 a | place team-a/a > a=rail0 | forge team-b/b a > b=others""",
    "a group is placed within its namespace's networks and shares, and one of that name elsewhere is another": """
        offer n1 4 only rest | offer n2 4 only rest | group "min":4RAILS team-b/b0..3 team-c/c0..2
        > b0=rail1 b1=rail1 b2=rail1 b3=rail1 c0=few c1=few c2=few
        | place team-b/more > more=team-b:2+1>2('rail1')""",
    "a group whose first rail is for others waits": """
        offer n1 4 only rest | offer n2 4 only rest | group "min":4,"rails":"index" team-b/b0..3
        > b0=others b1=others b2=others b3=others""",
}


@stories(STORIES, RAILS={"any rails": "", "same rails": ',"rails":"same"'})
def test_tenants(story: str, life: Life) -> None:
    play(Tenants(life), story)


def test_an_equal_pod_of_another_namespace_is_decided_about_anew(life: Life) -> None:
    """In either order, before and after the first restriction, and after the last."""
    tenants = Tenants(life)
    for entry in ("all", "a", "all", "a"):
        tenants.offer("n1", "64", entry)
        for namespace in ("team-a", "team-b", "team-a", "team-b"):
            answer = "others" if namespace == "team-b" and entry == "a" else "rail0"
            play(tenants, f"place {namespace}/p > p={answer}")
            if answer == "others":
                tenants.delete("p")


def test_a_new_leader_counts_the_share_again(life: Life) -> None:
    tenants = Tenants(life)
    play(tenants, "offer n1 4 half | place team-a/a:2 > a=rail0,rail0")
    other = Tenants(life.successor())
    other.life.see(tenants.pods["a"])
    play(other, "offer n1 4 half | place team-a/late > late=team-a:2+1>2('rail0') | place team-b/b > b=rail0")


def test_a_pod_with_gpus_gets_vfs_of_its_own_networks(life: Life) -> None:
    """Both are placed together; the share of a pod with GPUs counts as any other's."""
    life = life.successor(Machine("mooring", kinds=Kinds([gpu_kind()])))
    gpus = [Gpu(f"0000:{number}b:00.0", f"GPU-{number}", "nvidia", pcie=_PATH) for number in range(1, 5)]
    inventory = {KEY: dump_gpu_inventory(GpuInventory(tuple(gpus)))}
    node(life, "n1", OF_A, HALF, annotations=inventory, allocatable={"mooring.dev/gpu": "4"})
    resources = {name: {"mooring.dev/gpu": "1"} for name in ("limits", "requests")}
    tenants, containers = Tenants(life), [{"name": "c", "resources": resources}]
    answer = tenants.place("team-b/b0", "team-b/b1", "team-b/b2", containers=containers)
    assert answer == "b0=rail1 b1=rail1 b2=team-b:2+1>2('rail1')"
    beside = {f"{names.REQUEST_OF}gpu": '{"vfs":"switch"}'}
    assert tenants.place("team-a/a:rail0", annotations=beside, containers=containers) == "a=rail0"
    life.machine.check()


def test_kube_schedulers_pods_are_held_to_the_same_terms(
    machine: Machine, make_pf: MakePf, make_node: MakeNode, make_pod: MakePod
) -> None:
    """When nodes are filtered, when one is bound, and when victims are proposed."""
    scene = Scene(machine, make_node, make_pf, make_pod)
    scene.add_node("n1", vfs=4, access=OF_A)
    scene.add_node("n2", vfs=2, access=HALF)

    def pod_info(namespace: str) -> PodInfo:
        return scene.pod_info(metadata={"namespace": namespace})

    first, second = pod_info("team-b"), pod_info("team-b")
    assert scene.verdicts(first, "n1", "n2") == {"n1": Verdict(REFUSED, for_good=True), "n2": Verdict()}
    assert scene.extender_pods.reserve(first, "n1", NOW) == Refused(f"node 'n1': {REFUSED}")
    assert scene.extender_pods.make_room(first, "n1", Victims((), 0), NOW) is None
    scene.given(first, "n2")
    share = "namespace 'team-b' has 1 VFs of network 'rail0' and requests 1 more; max_share 50 allows it 1"
    assert scene.verdicts(second, "n2") == {"n2": Verdict(share)}
    assert scene.extender_pods.reserve(second, "n2", NOW) == Refused(f"node 'n2': {share}")
    assert scene.given(pod_info("ml-train"), "n1").assigned.node == "n1"


_RAILS = ("", ',"rails":"same"', ',"rails":"index"')
_TERMS = (Access(), Access(("a",)), Access(("a", "b*")), Access(max_share=50, entry=1), Access(("b*", "c"), 30, 2))


@pytest.mark.parametrize("seed", range(6))
def test_whatever_comes_and_goes_no_namespace_has_more_than_the_offer_gives_it(seed: int, life: Life) -> None:
    """Pods, groups and urgent pods of four namespaces; after every step each assignment is held against the offer."""
    random, alive, served = Random(seed), dict[str, Pod](), set[str]()
    for number in range(3):
        node(life, f"n{number}", *random.choices(_TERMS, k=3), vfs=random.randint(1, 4))
    for step in range(25):
        namespace = random.choice(("a", "b", "b2", "c"))
        request = [random.choice(({}, {}, {"network": "rail1"})) for _ in range(random.randint(1, 3))]
        group = {names.GROUP: f'{{"name":"g{step}","min":2{random.choice(_RAILS)}}}'} if random.random() < 0.3 else {}
        fields: dict[str, Any] = {"annotations": group, "spec": {"priority": random.choice((0, 0, 9))}}
        pods = [pod_of(life, namespace, f"p{step}-{k}", request, **fields) for k in range(2 if group else 1)]
        found = life.see(*pods) + life.work(60)
        bound = life.bound(*binds(found))
        alive |= {pod.key: pod for pod in bound}
        for key in [victim.pod for one in orders(found) for victim in one.victims]:
            life.gone(alive.pop(key))
        if alive and random.random() < 0.4:
            life.gone(alive.pop(random.choice(sorted(alive))))
        served |= {pod.metadata.namespace or "" for pod in bound}
        for number in range(3):
            _hold_to_offer(life, f"n{number}")
    assert len(served) > 2


def _hold_to_offer(life: Life, name: str) -> None:
    """Count by the offer's definition alone."""
    node_info = life.machine.cache.node(name)
    assert node_info is not None
    assert node_info.inventory is not None
    pfs, counts = node_info.inventory.pfs, Counter[tuple[int, str]]()
    for pod in life.machine.cache.assigned_pods_on(name):
        namespace = pod.pod.partition("/")[0]
        for vf in pod.assignment.vfs if pod.assignment is not None else ():
            (pf,) = (pf for pf in pfs if pf.name == vf.pf)
            allowed = pf.access.namespaces or ("*",)
            assert any(fnmatchcase(namespace, pattern) for pattern in allowed), (pod.pod, pf.access)
            counts[pf.access.entry, namespace] += 1
    for (entry, namespace), count in counts.items():
        of_entry = [pf for pf in pfs if pf.access.entry == entry]
        share = of_entry[0].access.max_share
        assert share is None or count <= max(1, sum(len(pf.vfs) for pf in of_entry) * share // 100), namespace
