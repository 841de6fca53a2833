"""Where a pod's volumes let it go, the messages if they let it go nowhere, and what requeues it then."""

import time
from typing import Any

import pytest

from mooring.kube.events import Identity, Removed
from scheduler.kube.objects import Pod
from scheduler.kube.storage_objects import CSINode, PersistentVolume, VolumeAttachment
from tests.scheduler.conftest import Json
from tests.scheduler.group_life import victims
from tests.scheduler.volume_store import HOST, ZONE, Store, on

EPHEMERAL = {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]}
BY_HAND = "kubernetes.io/no-provisioner"
UNBOUND = "pod has unbound immediate PersistentVolumeClaims."
CONFLICT = "2 node(s) didn't match PersistentVolume's node affinity."
NONE_FREE = "node(s) didn't find available persistent volumes to bind."
FULL = "1 node(s) exceed max volume count."
OF_C = {"namespace": "default", "name": "c"}


def _owners(pod: Pod) -> list[Json]:
    return [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod.metadata.uid, "controller": True}]


def _required(term: Json) -> Json:
    return {"where": {"required": {"nodeSelectorTerms": [term]}}}


def _use(store: Store, *names: str, node: str | None = None, **fields: Any) -> Pod:
    """Show volumes and claims of these names, bound to each other, and a pod that uses the claims."""
    for name in names:
        store.volume(name, **fields)
        store.claim(name, name)
    return store.pod(*names, node=node)


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        (None, 'persistentvolumeclaim "c" not found.'),
        ({"of": "now"}, UNBOUND),
        ({"of": "unheard-of"}, UNBOUND),
        ({"spec": {"volumeName": "v"}}, UNBOUND),
        ({"volume": "v", "phase": "Lost"}, 'persistentvolumeclaim "c" bound to non-existent persistentvolume "v".'),
        ({"going": True}, 'persistentvolumeclaim "c" is being deleted.'),
    ],
)
def test_an_unusable_claim_refuses_the_pod_on_all_nodes(claim: Json | None, reason: str, store: Store) -> None:
    """In kube-scheduler's words, and only the claim's next change requeues the pod."""
    store.storage_class("now", mode="Immediate")
    store.nodes("n1", "n2")
    if claim is not None:
        store.claim("c", **claim)
    store.pod("c")
    assert store.outcome() == reason
    store.now = 100.0
    store.nodes("n3")
    store.claim("another")
    assert store.run() == []
    store.volume("v")
    store.claim("c", "v")
    store.now = 200.0
    assert store.outcome() == "n1"


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
    store.nodes("n1", **{ZONE: "z"})
    store.nodes("n2", **{ZONE: "b"})
    if volume is not None:
        store.volume("v", **volume)
    store.claim("c", "v")
    store.pod("c")
    for outcome in outcomes:
        assert store.outcome() == outcome
        store.now += 10.0
        store.nodes("n3", **{ZONE: "c"})


def test_the_zone_label_of_an_ephemeral_volume_is_ignored(store: Store) -> None:
    """As in kube-scheduler: it reads the zone only for the pod's own claims."""
    store.nodes("n1", **{ZONE: "z"})
    pod = store.make_pod("p", spec=EPHEMERAL)
    store.volume("v", labels={ZONE: "b"})
    store.claim("p-scratch", "v", owners=_owners(pod))
    store.show(pod)
    assert store.outcome() == "n1"


def test_a_claim_for_one_pod_only_is_used_by_one_pod_at_a_time(store: Store) -> None:
    """Anywhere in the cluster; when that pod is gone, the next is requeued."""
    store.nodes("n1", "n2")
    store.volume("v")
    store.claim("c", "v", modes=["ReadWriteOncePod"])
    first = store.pod("c", node="n1")
    store.pod("c")
    reason = "due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
    assert store.outcome() == f"2 node(s) unavailable {reason}."
    store.now = 10.0
    store.machine.pods(Removed(Identity(first.metadata.name, "default", first.metadata.uid)), store.now)
    assert store.outcome() == "n1"


def test_an_ephemeral_volume_waits_for_its_claim_and_takes_no_other_pods(store: Store) -> None:
    """The claim is named after pod and volume, and must be the pod's own."""
    store.nodes("n1")
    pod = store.pod(spec=EPHEMERAL, name="p")
    waits = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch".'
    assert store.outcome() == waits
    store.now = 10.0
    store.claim("p-scratch", "v")
    assert store.outcome() == "PVC default/p-scratch was not created for pod default/p (pod is not owner)."
    store.now = 20.0
    store.volume("v")
    store.claim("p-scratch", "v", owners=_owners(pod))
    assert store.outcome() == "n1"


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


def test_the_smallest_volume_that_fits_is_taken_and_each_once(store: Store) -> None:
    """Claims are served from the smallest up; volumes for all nodes and for one are found by different labels."""
    store.nodes("n1")
    for name, size in (("big", "9Gi"), ("mid", "3Gi"), ("here", "4Gi"), ("small", "1Gi"), ("anywhere", "2Gi")):
        store.volume(name, size=size, where=on(HOST, "n1") if name in ("here", "small") else None)
    sizes = {"first": "1Gi", "second": "1500Mi", "third": "2500Mi", "fourth": "3500Mi"}
    for name, size in reversed(sizes.items()):
        store.claim(name, size=size)
    store.pod(*sorted(sizes))
    assert store.outcome() == "n1 first=small fourth=here second=anywhere third=mid"


def test_a_volume_is_made_only_where_its_class_allows(store: Store) -> None:
    """By the class's allowed topologies; a node where it may be made requeues the pod."""
    store.storage_class("zonal", allowedTopologies=[{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}])
    store.nodes("n1", **{ZONE: "a"})
    store.claim("c", of="zonal")
    store.pod("c")
    assert store.outcome() == f"1 {NONE_FREE}"
    store.now = 10.0
    store.nodes("n2", **{ZONE: "b"})
    assert store.outcome() == "n2 c=new"


def test_a_claim_whose_node_is_chosen_goes_there_only(store: Store) -> None:
    """Whichever scheduler selected it: a new leader finds what the one before had begun."""
    store.nodes("n1", "n2")
    store.claim("c", selected="n2")
    store.pod("c")
    assert store.outcome() == "n2 c=new"


def test_volumes_found_by_label_are_those_found_by_looking_at_all(store: Store) -> None:
    store.nodes("n1", "n2")
    store.storage_class("late", BY_HAND)
    store.volume("v", where=on(HOST, "n1"))
    store.volume("v", where=on(HOST, "n2", "n3"))
    store.claim("c")
    store.pod("c")
    assert store.outcome() == "n2 c=v"
    store.gone(PersistentVolume, "v")
    store.claim("d")
    store.pod("d")
    assert store.outcome() == f"2 {NONE_FREE}"


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


def test_a_driver_attaches_no_more_volumes_than_its_limit(store: Store) -> None:
    """Volumes that pods use and those attached without a pod count once each; a volume already there adds none."""
    store.nodes("n1")
    store.limit("n1", 3)
    _use(store, "v1", node="n1")
    store.attach("n1", "v1")
    store.attach("n1", "v2")
    _use(store, "v3")
    assert store.outcome() == "n1"
    _use(store, "v2")
    assert store.outcome() == "n1"
    _use(store, "v4")
    assert store.outcome() == FULL
    store.now = 10.0
    store.limit("n1", 4)
    assert store.outcome() == "n1"


@pytest.mark.parametrize(
    ("driver", "outcome"), [({"allocatable": {"count": 0}}, FULL), ({"allocatable": {}}, "n1"), ({}, "n1")]
)
def test_a_limit_of_0_is_one_and_none_is_no_limit(driver: Json, outcome: str, store: Store) -> None:
    store.nodes("n1")
    store.tell(CSINode, {"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": "csi.x"} | driver]}})
    _use(store, "v")
    assert store.outcome() == outcome


def test_a_detached_volume_no_longer_counts(store: Store) -> None:
    """The attachment's end requeues the pods that wait for it; a change of its status requeues none."""
    store.nodes("n1")
    store.limit("n1", 1)
    store.attach("n1", "v1")
    store.volume("v1")
    _use(store, "v2")
    assert store.outcome() == FULL
    store.now = 10.0
    store.attach("n1", "v1")
    assert store.machine.pending_pods.depths()["unschedulable"] == 1
    store.gone(VolumeAttachment, "a-n1-v1")
    assert store.outcome() == "n1"


@pytest.mark.parametrize("claims", ["cc", "ab"], ids=["ReadWriteOncePod claim", "limit of attached volumes"])
def test_a_pod_is_preempted_for_its_claim_or_its_attached_volume(claims: str, store: Store) -> None:
    """The less important pod that has it goes; another pod on the node, of the same priority, stays."""
    store.nodes("n1")
    store.limit("n1", 1)
    for name in claims:
        store.claim(name, f"v{name}", modes=["ReadWriteOncePod"])
        store.volume(f"v{name}", claim={"name": name, "namespace": "default", "uid": f"u-{name}"})
    store.pod(claims[0], node="n1", name="holder")
    store.pod(node="n1")
    store.pod(claims[1], spec={"priority": 1})
    assert victims(store.run()) == ["holder"]


def test_no_pod_is_preempted_where_the_volume_cannot_be_used(store: Store) -> None:
    """Both nodes are full; only the pods on the volume's own node are in the way."""
    busy = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "8"}}}]}
    for node in ("n1", "n2"):
        store.nodes(node)
        store.pod(node=node, name=f"on-{node}", spec=busy)
    store.claim("c", "v")
    store.volume("v", where=on(HOST, "n2"), claim=OF_C | {"uid": "u-c"})
    store.pod("c", spec=busy | {"priority": 1})
    assert victims(store.run()) == ["on-n2"]
