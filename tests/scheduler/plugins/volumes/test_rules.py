"""Where a pod's volumes let it go, why they let it go nowhere, what requeues it then, and what ends its wait."""

import time

import pytest

from mooring.parsing import MAX_BYTES
from tests.scheduler.conftest import Json
from tests.scheduler.group_life import annotated
from tests.scheduler.story import play, stories
from tests.scheduler.volume_store import HOST, ZONE, Store, VolumeStory, on

BY_HAND = "kubernetes.io/no-provisioner"
UNBOUND = "pod has unbound immediate PersistentVolumeClaims."
CONFLICT = "2 node(s) didn't match PersistentVolume's node affinity."
NONE_FREE = "node(s) didn't find available persistent volumes to bind."
FULL = "1 node(s) exceed max volume count."
OF_C = {"namespace": "default", "name": "c"}


def _required(term: Json) -> Json:
    return {"where": {"required": {"nodeSelectorTerms": [term]}}}


@pytest.mark.parametrize(
    ("volume", "outcomes"),
    [
        ({"where": on(HOST, "n3"), "phase": "Bound"}, [CONFLICT, "n3"]),
        # Nodes without any zone label are not excluded.
        ({"labels": {ZONE: "d__c"}}, ["2 node(s) had no available volume zone.", "n3"]),
        # Several zones are separated by two underscores; a zone with an empty name is ignored.
        ({"labels": {ZONE: "a__b"}}, ["n2"]),
        ({"labels": {ZONE: "d__b"}}, ["n2"]),
        ({"labels": {ZONE: "d____b"}}, ["n1"]),
        ({"labels": {ZONE: "__b"}}, ["n1"]),
        ({"labels": {"failure-domain.beta.kubernetes.io/zone": "b"}}, ["n2"]),
        # A term of fields alone holds everywhere, for the kubelet too; one without anything nowhere.
        (_required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}), ["n1"]),
        (_required({}), [CONFLICT]),
        # kube-scheduler's VolumeBinding counts it node by node, but VolumeZone refuses before and names the volume.
        (None, ['persistentvolume "v" not found.']),
    ],
)
def test_a_bound_volume_restricts_the_pod_to_nodes_that_can_use_it(
    volume: Json | None, outcomes: list[str], store: Store
) -> None:
    """By its node affinity, or by its zone label; a node added later that it fits requeues the pod."""
    store.nodes("n1", labels={ZONE: "z"})
    store.nodes("n2", labels={ZONE: "b"})
    if volume is not None:
        store.volume("v", **volume)
    store.claim("c", "v")
    store.pod("c")
    for outcome in outcomes:
        assert store.outcome() == outcome
        store.now += 10.0
        store.nodes("n3", labels={ZONE: "c"})


@pytest.mark.parametrize(
    ("volumes", "claim", "outcome"),
    [
        ({"v": {"of": "another"}}, {}, f"2 {NONE_FREE}"),
        ({"v": {"size": "1Mi"}}, {}, f"2 {NONE_FREE}"),
        ({"v": {"claim": {"namespace": "x", "name": "y"}}}, {}, f"2 {NONE_FREE}"),
        ({"v": {"phase": "Released"}}, {}, f"2 {NONE_FREE}"),
        ({"v": {"spec": {"volumeMode": "Block"}}}, {}, f"2 {NONE_FREE}"),
        ({"v": {"spec": {"accessModes": ["ReadOnlyMany"]}}}, {}, f"2 {NONE_FREE}"),
        ({"v": {"spec": {"volumeAttributesClassName": "gold"}}}, {}, f"2 {NONE_FREE}"),
        ({"v": {"labels": {"tier": "slow"}}}, {"selector": {"matchLabels": {"tier": "fast"}}}, f"2 {NONE_FREE}"),
        ({"v": {"labels": {"tier": "fast"}}}, {"selector": {"matchLabels": {"tier": "fast"}}}, "n1 c=v"),
        # A volume that names the claim is its own, and if it cannot be used, no other is taken.
        ({"own": {"where": on(HOST, "n2"), "claim": OF_C, "size": "5Gi"}, "free": {}}, {}, "n2 c=own"),
        ({"own": {"where": on(HOST, "n9"), "claim": OF_C}, "free": {}}, {}, f"2 {NONE_FREE}"),
    ],
)
def test_a_claim_goes_where_a_volume_is_free_for_it(
    volumes: dict[str, Json], claim: Json, outcome: str, store: Store
) -> None:
    """A class without a provisioner needs a volume of that class, large enough and nobody's; one requeues the pod."""
    store.storage_class("late", BY_HAND)
    store.nodes("n1", "n2")
    for name, fields in volumes.items():
        store.volume(name, **fields)
    store.claim("c", spec=claim)
    store.pod("c")
    assert store.outcome() == outcome
    if outcome == f"2 {NONE_FREE}" and "own" not in volumes:
        store.now = 10.0
        store.volume("right", where=on(HOST, "n2"), labels={"tier": "fast"})
        assert store.outcome() == "n2 c=right"


@pytest.mark.parametrize("free", [0, 7, 46, 69])
def test_of_many_nodes_the_one_with_a_free_disk_is_found(free: int, store: Store) -> None:
    """However many disks before it are taken, or too small; when it is taken too, every node is counted once."""
    store.storage_class("late", BY_HAND)
    for number in range(70):
        store.nodes(name := f"n{number}")
        taken = None if number % 5 else {"namespace": "default", "name": "another", "uid": "u"}
        own = {} if number == free else {"size": "1Mi", "claim": taken}
        store.volume(f"v{number}", where=on(HOST, name), **own)
    store.claim("c")
    store.claim("d")
    store.pod("c")
    assert store.outcome() == f"n{free} c=v{free}"
    store.pod("d")
    assert store.outcome() == f"70 {NONE_FREE}"


def test_claims_that_any_volume_could_serve_are_judged_once_and_not_on_every_node(store: Store) -> None:
    """A claim's selector was read, and compared with each volume, again for each node: 8 claims took seconds."""
    store.storage_class("late", BY_HAND)
    store.nodes(*(f"n{number}" for number in range(300)))
    store.volume("disk", where=on(HOST, "elsewhere"))
    for number in range(100):
        store.volume(f"v{number}", size="2Gi", labels={"tier": "any"})
    differs = [{"key": "tier", "operator": "NotIn", "values": [f"x{number}"]} for number in range(100)]
    claims = [f"c{number}" for number in range(8)]
    for name in claims:
        store.claim(name, spec={"selector": {"matchExpressions": differs}})
    store.claim("too-large", size="9Gi")
    store.pod(*claims, "too-large")
    began = time.thread_time()
    assert store.outcome() == f"300 {NONE_FREE}"
    assert time.thread_time() - began < 2.0


ONCE = "due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod."
MATCHED = "by_hand | nodes n1 | volume v | claim c | pod p c | decide > n1 c=v"
NO_VOLUME = 'binding volumes: failed to check binding: persistentvolume "v" not found'
NO_ROOM = "1 node(s) did not have enough free storage."
STORIES = {
    # In kube-scheduler's words, and only the claim's next change requeues the pod.
    "an unusable claim refuses the pod on all nodes": """
        nodes n1 n2 | CLAIM | later 100 | nodes n3 | claim another | decide | volume v | claim c v | later 100
        | decide > n1""",
    "a claim that is shown again as it was requeues no pod": f"""
        nodes n1 | immediate now | claim c of=now | pod p c | decide > {UNBOUND} | later 10 | claim c of=now
        | waiting > 1""",
    "a node whose labels change requeues no pod that no node can take": f"""
        nodes n1 | immediate now | claim c of=now | pod p c | decide > {UNBOUND} | later 10 | nodes n1 zone=b
        | waiting > 1""",
    "a volume that has grown requeues the pod": f"""
        by_hand | nodes n1 | volume v | claim c size=2Gi | pod p c | decide > 1 {NONE_FREE} | later 10
        | volume v size=2Gi | decide > n1 c=v""",
    "a class that allows the node's zone now requeues the pod": f"""
        zonal b | nodes n1 zone=a | claim c | pod p c | decide > 1 {NONE_FREE} | later 10 | zonal a
        | decide > n1 c=new""",
    "a node that comes to the volume's zone requeues the pod": """
        nodes n1 zone=a | volume v zone=b | claim c v | pod p c | decide > 1 node(s) had no available volume zone.
        | later 10 | nodes n1 zone=b | decide > n1""",
    "a volume that was missing requeues the pod": """
        nodes n1 | claim c v | pod p c | decide > persistentvolume "v" not found. | later 10 | volume v
        | decide > n1""",
    "a node whose labels allow the volume now requeues the pod": """
        nodes n1 disk=x | volume v disk=y for=c | claim c v | pod p c
        | decide > 1 node(s) didn't match PersistentVolume's node affinity. | later 10 | nodes n1 disk=y
        | decide > n1""",
    # As for kube-scheduler.
    "a limit of 0 is one, and none is no limit": "nodes n1 | LIMIT",
    # As in kube-scheduler, which reads the zone only for the pod's own claims.
    "the zone label of an ephemeral volume is ignored": """
        pod p ephemeral | volume v zone=b | claim p-scratch v owner=p | nodes n1 zone=z | later 10 | decide > n1""",
    "an ephemeral volume waits for its claim, which must be the pod's own": """
        nodes n1 | pod p ephemeral
        | decide > waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch".
        | later 10 | pod q on=n1 | claim p-scratch v owner=q
        | decide > PVC default/p-scratch was not created for pod default/p (pod is not owner).
        | later 10 | volume v | claim p-scratch v owner=p | decide > n1""",
    "a claim for one pod only is used by one pod at a time, anywhere in the cluster": f"""
        nodes n1 n2 | volume v | claim c v once | pod first c on=n1 | pod second c
        | decide > 2 node(s) unavailable {ONCE} | later 10 | delete first | decide > n1""",
    # Volumes for all nodes and for one are found by different labels.
    "the smallest volume that fits is taken, each once, for the smallest claim first": """
        nodes n1 | volume big size=9Gi | volume mid size=3Gi | volume here size=4Gi on=n1 | volume small size=1Gi on=n1
        | volume anywhere size=2Gi | claim d size=3500Mi | claim c size=2500Mi | claim b size=1500Mi | claim a size=1Gi
        | pod p a b c d | decide > n1 a=small b=anywhere c=mid d=here""",
    "a volume is made only where its class allows, and a node there requeues the pod": f"""
        zonal b | nodes n1 zone=a | claim c | pod p c | decide > 1 {NONE_FREE} | later 10 | nodes n2 zone=b
        | decide > n2 c=new""",
    # Whichever scheduler selected it: a new leader finds what the one before had begun.
    "a claim whose node is chosen goes there only": "nodes n1 n2 | claim c selected=n2 | pod p c | decide > n2 c=new",
    "volumes found by label are those found by looking at all": f"""
        by_hand | nodes n1 n2 | volume v on=n1 | volume v on=n2,n3 | claim c | pod p c | decide > n2 c=v
        | lose_volume v | claim d | pod q d | decide > 2 {NONE_FREE}""",
    # Those that pods use and those attached without a pod count once each; a volume already there adds none.
    "a driver attaches no more volumes than its limit": f"""
        nodes n1 | limit n1 3 | volume v1 | volume v2 | volume v3 | volume v4 | claim a v1 | claim b v2 | claim c v3
        | claim d v4 | pod p a on=n1 | attach n1 v1 | attach n1 v2 | pod q c | decide > n1 | pod r b | decide > n1
        | pod s d | decide > {FULL} | later 10 | limit n1 4 | decide > n1""",
    "a detached volume no longer counts; a change of the attachment's status requeues no pod": f"""
        nodes n1 | limit n1 1 | volume v1 | attach n1 v1 | volume v2 | claim c v2 | pod p c | decide > {FULL}
        | later 10 | attach n1 v1 | waiting > 1 | detach n1 v1 | decide > n1""",
    "the less important pod that has the claim is preempted, and no other one": """
        nodes n1 | claim c v once | volume v for=c | pod holder c on=n1 | pod other on=n1 | pod p c priority=1
        | preempt > holder""",
    "the less important pod that has an attached volume is preempted, and no other one": """
        nodes n1 | limit n1 1 | claim c v once | volume v for=c | claim d w once | volume w for=d | pod holder c on=n1
        | pod other on=n1 | pod p d priority=1 | preempt > holder""",
    "no pod is preempted where the volume cannot be used": """
        nodes n1 n2 | pod a on=n1 cpu=8 | pod b on=n2 cpu=8 | claim c v | volume v on=n2 for=c
        | pod p c cpu=8 priority=1 | preempt > b""",
    # No filter but that of cpu has rejected the node.
    "a pod is preempted as soon as its node can use the volume": """
        nodes n1 disk=x | pod a on=n1 cpu=8 | claim c v | volume v disk=y for=c | pod p c cpu=8 priority=1 | preempt
        | later 10 | nodes n1 disk=y | preempt > a""",
    # Between the decision and its bind, while the pod waits for its volumes.
    # The change does not concern the claim: the pods that wait for the volume are found all the same.
    "a volume that no longer names its claim ends the wait at once": f"""
        {MATCHED} | answer v=4 | volume v for=c | decide | volume v
        | decide > binding volumes: ClaimRef got reset for pv "v\"""",
    "an assumed volume that is deleted before its claim shows ends the wait at once": f"""
        {MATCHED} | answer v=1000 | decide | lose_volume v | decide > {NO_VOLUME}""",
    # A list may skip the moment at which the volume named the claim.
    "an assumed volume that is not listed any more ends the wait at once": f"""
        {MATCHED} | answer v=1000 | decide | unlist | decide > {NO_VOLUME}""",
    # The first pod's claim could not be written and the pod is deleted: no event of the API concerns the second.
    "an assumed volume that is given up requeues pods that wait for one": f"""
        {MATCHED} | claim d | pod q d | decide > 1 {NONE_FREE}
        | answer forbidden | terminate p | later 10 | decide > n1 d=v""",
    # They share a claim; the first one took the node's capacity and was deleted before anything was written.
    "a selected node that is given up no longer restricts the claim's other pods": """
        nodes n1 | claim c | pod p c cpu=5 | decide > n1 c=new | pod q c to=n2 | nodes n2
        | decide > 1 node(s) didn't find available persistent volumes to bind,
        1 node(s) didn't match Pod's node affinity/selector.
        | terminate p | later 10 | decide > n2 c=new""",
    # A driver that publishes its capacity.
    # The first node in order is full: it is not chosen again and again.
    "a volume is made where the driver has capacity for it": """
        publish | nodes n1 n2 n3 | room n1 1Gi | room n2 9Gi 1Gi | room n3 4Gi | claim c size=4Gi | pod p c
        | decide > n3 c=new""",
    "an existing volume needs no capacity": "publish | nodes n1 | volume v | claim c | pod p c | decide > n1 c=v",
    # Growth helps; a driver that publishes nothing is simply tried.
    "less capacity requeues no pod, and a driver that stops publishing does": f"""
        publish | nodes n1 | room n1 2Gi | claim c size=4Gi | pod p c | decide > {NO_ROOM} | later 10 | room n1 1Gi
        | no_room n1 | waiting > 1 | publish off | decide > n1 c=new""",
    "without a driver that publishes capacity every node has enough": """
        nodes n1 | claim c size=4Gi | pod p c | decide > n1 c=new""",
}


UNUSABLE = {
    "absent": 'pod p c | decide > persistentvolumeclaim "c" not found.',
    "of an immediate class": f"immediate now | claim c of=now | pod p c | decide > {UNBOUND}",
    "of an unknown class": f"claim c of=unheard-of | pod p c | decide > {UNBOUND}",
    "bound by its user only": f"claim c preset=v | pod p c | decide > {UNBOUND}",
    "lost": """claim c v phase=Lost | pod p c
        | decide > persistentvolumeclaim "c" bound to non-existent persistentvolume "v".""",
    "being deleted": 'claim c deleted=yes | pod p c | decide > persistentvolumeclaim "c" is being deleted.',
}
LIMITS = {"0": f"limit n1 0 | VOLUME > {FULL}", "none": "limit n1 | VOLUME > n1", "no field": "driver n1 | VOLUME > n1"}


@stories(STORIES, CLAIM=UNUSABLE, LIMIT=LIMITS, VOLUME={"": "volume v | claim c v | pod p c | decide"})
def test_pods_with_volumes(story: str, store: Store) -> None:
    play(VolumeStory(store), story)


def test_annotations_that_have_grown_too_large_meanwhile_are_not_bound(store: Store) -> None:
    """A Binding that makes them too large would poison the pod; it comes again when they are smaller."""
    story = VolumeStory(store)
    play(story, "nodes n1 | claim c | pod p c | decide > n1 c=new | answer")
    store.see(annotated(story.pods["p"], {"a": "x" * MAX_BYTES}))
    play(story, "claim c v selected=n1 | volume v on=n1 for=c")
    assert "annotations would have" in store.outcome()
    store.see(story.pods["p"])
    play(story, "later 20 | decide > n1")
