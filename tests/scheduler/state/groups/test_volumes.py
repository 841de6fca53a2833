"""No Binding of a group is written before the volumes of all of its members are bound; one failure releases all.

Members may share a claim whose volume is provisioned once its first user has a node. No member alone could start: all
are held until the volume is there, and its node affinity is then what counts.
"""

from mooring import names
from scheduler.cycle.instructions import Instruction, PreBind, PreBindResult
from scheduler.kube.outcomes import Outcome
from scheduler.kube.storage_objects import CSINode
from tests.scheduler.group_life import TRAIN, binds, changed
from tests.scheduler.story import play, stories
from tests.scheduler.volume_store import HOST, ZONE, Store, VolumeStory, messages, on, pre_binds

MANY = ["ReadWriteMany"]


class GroupVolumes(VolumeStory):
    """What happens to pods with claims; each with claim ``data``, which they share, fills a node."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.group, self.own_claim = TRAIN, ""
        self.found: list[Instruction] = []
        # The PreBinds that are being written, by pod.
        self.orders: dict[str, PreBind] = {}

    def shared_claim(self, selected: str = "") -> None:
        """Show the claim that many pods may use, with the node that it is to be provisioned for."""
        self.store.storage_class()
        self.store.claim("data", modes=MANY, selected=selected)

    def min(self, count: str) -> None:
        self.group = f'{{"name":"train","min":{count}}}'

    def use(self, claim: str = "") -> None:
        """Let later pods use a claim, or none."""
        self.own_claim = claim

    def come(self, *pods: str, group: str | None = None) -> None:
        for name in pods:
            requests = {"cpu": "6"} if self.own_claim == "data" else {}
            spec = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
            annotations = {names.GROUP: self.group} if group is None else {}
            claims = [self.own_claim] if self.own_claim else []
            self.pods[name] = self.store.pod(*claims, name=name, spec=spec, annotations=annotations)

    def ask(self, pod: str, group: str, request: str = "") -> None:
        """Let a pod's owner change its group and its request; a dash is no group."""
        texts = {names.GROUP: group.strip("-"), names.REQUEST: request}
        annotations = {key: text for key, text in texts.items() if text}
        self.pods[pod] = changed(self.pods[pod], metadata={"annotations": annotations})
        self.store.see(self.pods[pod])
        self.store.machine.check()

    def topology(self, name: str, *keys: str) -> None:
        """Let a driver register with topology keys on n1 to n3."""
        for node in ("n1", "n2", "n3"):
            drivers = [{"name": name, "topologyKeys": list(keys)}]
            self.store.tell(CSINode, {"metadata": {"name": node}, "spec": {"drivers": drivers}})

    def step(self) -> None:
        """Begin a decision that does not end with this step."""
        self.store.machine.tick(self.store.now)
        assert self.store.machine.step(self.store.now) == []
        assert self.store.machine.is_trying

    def wait(self, seconds: str) -> str:
        """Let time pass, and decide about all that is ready; return where pods are bound now, as ``pod@node``."""
        self.found = self.store.work(float(seconds))
        self.store.machine.check()
        self.orders |= {order.decision.pod_info.pod.metadata.name: order for order in pre_binds(self.found)}
        return " ".join(sorted(f"{one.pod_info.pod.metadata.name}@{one.assigned.node}" for one in binds(self.found)))

    def planned(self) -> str:
        """Return on which nodes pods wait for their volumes."""
        return " ".join(sorted(f"{pod}@{order.plan.node}" for pod, order in self.orders.items()))

    def assigned(self) -> str:
        return " ".join(sorted(one.pod.removeprefix("default/") for one in self.store.machine.cache.assigned_pods()))

    def states(self, *pods: str) -> str:
        groups = self.store.machine.group_cache
        return " ".join(str(groups.state(self.pods[pod].metadata.uid)) for pod in pods)

    def told(self, *words: str) -> None:
        """Expect that all that were told got one message, with these words."""
        (message,) = messages(self.found)
        assert " ".join(words) in message

    def bind_volume(self, *pods: str) -> None:
        """Write the plans of pods, and let the volumes' controller bind what they name."""
        for pod in pods:
            order = self.orders.pop(pod)
            self.store.machine.finished(order, PreBindResult({}), self.store.now)
            for match in order.plan.matches:
                claim, volume = match.claim.metadata, match.volume.metadata.name
                reference = {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid}
                self.store.volume(volume, where=on(HOST, "n1", "n2", "n3"), claim=reference, phase="Bound")
                self.store.claim(claim.name, volume, phase="Bound")

    def fail(self, pod: str) -> None:
        self.store.machine.finished(self.orders.pop(pod), PreBindResult(fault="no such volume"), self.store.now)

    def write(self) -> str:
        """Write the plans, all of which select one node for the shared claim; return it."""
        (node,) = {provision.node for order in self.orders.values() for provision in order.plan.provisions}
        self.store.claim("data", modes=MANY, selected=node)
        for order in self.orders.values():
            self.store.machine.finished(order, PreBindResult({}), self.store.now)
        self.orders.clear()
        return node

    def provision(self, node: str, zone: str = "") -> None:
        """Let the provisioner make the volume for the selected node."""
        reference = {"namespace": "default", "name": "data", "uid": "u-data"}
        self.store.volume("pv", claim=reference, phase="Bound", where=on(ZONE, zone) if zone else None)
        self.store.claim("data", "pv", modes=MANY, selected=node, phase="Bound")

    def give_up(self) -> None:
        self.store.claim("data", modes=MANY)

    def refuse_bindings(self) -> None:
        for bind in binds(self.found):
            self.store.machine.finished(bind, Outcome("changed"), self.store.now)


# Two of three members use a volume each.
ANYWHERE = "on=n1,n2,n3"
READY = f"""
    nodes n1..3 | claim a | volume pv-a {ANYWHERE} | claim b | volume pv-b {ANYWHERE} | use a | come m0 | use b
    | come m1 | use | come m2 | wait 0 | planned > m0@n1 m1@n2"""
BOUND = "bind_volume m0 m1"
NOWHERE = '[{"network":"nowhere"}]'
RELEASED = "wait 0 | assigned"


@stories(
    {
        "wait for the last volume": f"{READY} | bind_volume m0 | wait 0 | bind_volume m1 | wait 0 > m0@n1 m1@n2 m2@n3",
        # They count for the decision about it: were they released, it would be left alone.
        "wait for that of a later member too": f"""
            {READY} | come m3 | bind_volume m0 | wait 0 | bind_volume m1 | wait 0 > m0@n1 m1@n2 m2@n3 m3@n1""",
        "are written at once if the member goes whose volume is not bound": f"""
            {READY.replace("claim a", "min 2 | claim a")} | bind_volume m1 | wait 0 | delete m0
            | wait 0 > m1@n2 m2@n3""",
        "are not written if one volume cannot be bound": f"""
            {READY} | bind_volume m0 | fail m1 | {RELEASED}
            | told group train: binding volumes of default/m1: no such volume | wait 0 | planned | wait 1
            | planned > m1@n2""",
        # Too few would be left, as a member without a volume counts too.
        "are not written if a member goes meanwhile": f"{READY} | delete m2 | {BOUND} | {RELEASED}",
        # The API server would bind it to a lost node.
        "are not written if a node goes meanwhile": f"""
            {READY} | lose n3 | {BOUND} | {RELEASED} | told group train: default/m2: node 'n3' was deleted
            meanwhile | wait 1 > m0@n1 m1@n2 m2@n1""",
        # It was counted for the group, and given what it wanted then; without it too few would start.
        "are not written if a member asks for something else meanwhile": f"""
            {READY} | ask m2 REQUEST""",
        # If they fail it is in its new group; the API server cannot be asked to take back what it may have done.
        "are not written again for a member that changes while they are written": f"""
            nodes n1..3 | come m0..2 | wait 0 > m0@n1 m1@n2 m2@n3 | ask m0 {{"name":"other","min":2}} | ask m1 {TRAIN} [
            | refuse_bindings | states m0..2 > waiting refused waiting | wait 60""",
        "need the most members that any of their decisions needed": f"""
            {READY} | nodes n4 | min 2 | come m3 | wait 0 | delete m1 | delete m2 | bind_volume m0 | wait 0""",
        "are not written for a pod that asks for something else while its volumes are bound": f"""
            nodes n1 | claim a | volume pv-a {ANYWHERE} | use a | come p group= | wait 0 | planned > p@n1 | ask p -
            {NOWHERE} | bind_volume p | {RELEASED} | told nodes are available""",
    },
    REQUEST={
        "another group": f'{{"name":"other","min":1}} | {BOUND} | wait 0 > m2@n1 | assigned > m2',
        "no group": f"- | {BOUND} | wait 0 > m2@n1 | assigned > m2",
        "unreadable group": f"{{ | {BOUND} | {RELEASED}",
        "unreadable request": f"{TRAIN} [ | {BOUND} | {RELEASED}",
        "another request": f"{TRAIN} {NOWHERE} | {BOUND} | {RELEASED}",
    },
)
def test_bindings(store: Store, story: str) -> None:
    play(GroupVolumes(store), story)


SHARED = "shared_claim | use data | come m0..2"
PLANNED = "wait 0 | planned > m0@n1 m1@n2 m2@n3"


@stories(
    {
        # A pod of no group waits until the volume shows where it can be used: its Binding would not wait for others.
        "starts on several nodes with a volume that all can use": f"""
            nodes n1..4 | {SHARED} | {PLANNED} | come p group= | wait 0 | told 4 nodes are available | write > n1 |
            provision n1 | wait 2 > m0@n1 m1@n2 m2@n3 p@n4""",
        # The provisioner has made it for one zone, which nobody knew; then they are placed there.
        "is released by a volume that a member cannot use": f"""
            nodes n1 n2 zone=a | nodes n3..5 zone=b | {SHARED} | {PLANNED} | write > n1 | provision n1 b | {RELEASED}
            | told node affinity doesn't match node | wait 1 > m0@n3 m1@n4 m2@n5""",
        # A volume can be expected to be usable only in the zone for which it is made.
        "is kept together by topology keys of its driver": f"""
            nodes n1 zone=a | nodes n2 zone=b | nodes n3 zone=c | topology csi.x {ZONE} | {SHARED} | wait 0 | planned
            | told node(s) didn't find available persistent volumes to bind | topology csi.x | wait 2 | {PLANNED}""",
        "is not kept together by topology keys of other drivers": f"""
            nodes n1 zone=a | nodes n2 zone=b | nodes n3 zone=c | topology other {ZONE} | {SHARED} | {PLANNED}""",
        "does not spread from what is provisioned for another pod": """
            nodes n1..4 | shared_claim n4 | use data | come m0..2 | wait 0 | planned | told nodes are available""",
        # No claim is provisioned for a node that is not there. The first of equal nodes takes the first member.
        "moves with the node that the claim is provisioned for": """
            nodes n0..19 | shared_claim | use data | min 18 | come m0..17 | step | lose n0 | wait 0 | write > n1""",
        "is released by a provisioner that gives up": f"""
            nodes n1..3 | {SHARED} | {PLANNED} | write > n1 | give_up | {RELEASED}
            | told provisioning failed for PVC "data" | wait 1 | {PLANNED}""",
    }
)
def test_a_group_that_shares_a_claim(store: Store, story: str) -> None:
    play(GroupVolumes(store), story)
