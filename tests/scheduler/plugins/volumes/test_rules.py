"""Where a pod's volumes let it go, and the messages if they let it go nowhere."""

import time
from typing import Any

import pytest

from mooring.kube.events import Identity, Removed
from scheduler.kube.objects import Pod
from scheduler.kube.storage_objects import PersistentVolume
from tests.scheduler.conftest import Json
from tests.scheduler.volume_store import HOST, ZONE, Store, on

EPHEMERAL = {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]}


def _owners(pod: Pod) -> list[Json]:
    return [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod.metadata.uid, "controller": True}]


def _use(store: Store, claim: Json | None = None, **volume: Any) -> None:
    """Show a pod whose claim is bound to a volume."""
    store.volume("v", **volume)
    store.claim("c", "v", **(claim or {}))
    store.pod("c")


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        (None, 'persistentvolumeclaim "c" not found'),
        ({"of": "now"}, "pod has unbound immediate PersistentVolumeClaims"),
        ({"of": "unheard-of"}, "pod has unbound immediate PersistentVolumeClaims"),
        ({"spec": {"volumeName": "v"}}, "pod has unbound immediate PersistentVolumeClaims"),
        ({"volume": "v", "phase": "Lost"}, 'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"'),
        ({"going": True}, 'persistentvolumeclaim "c" is being deleted'),
    ],
)
def test_an_unusable_claim_refuses_the_pod_on_all_nodes(claim: Json | None, reason: str, store: Store) -> None:
    """In kube-scheduler's words, and only the claim's next change requeues the pod."""
    store.storage_class("now", mode="Immediate")
    store.nodes("n1", "n2")
    if claim is not None:
        store.claim("c", **claim)
    store.pod("c")
    assert store.message() == f"0/2 nodes are available: {reason}."
    store.now = 100.0
    store.nodes("n3")
    store.claim("another")
    assert store.run() == []
    store.volume("v")
    store.claim("c", "v")
    store.now = 200.0
    assert store.choose() == "n1"


@pytest.mark.parametrize(
    ("volume", "reason"),
    [
        # Nodes without any zone label are not excluded.
        ({"where": on(HOST, "n3"), "phase": "Bound"}, "2 node(s) didn't match PersistentVolume's node affinity"),
        ({"labels": {ZONE: "b__c"}}, "2 node(s) had no available volume zone"),
    ],
)
def test_a_bound_volume_restricts_the_pod_to_nodes_that_can_use_it(volume: Json, reason: str, store: Store) -> None:
    """By its node affinity, or by its zone label; a node added later that it fits requeues the pod."""
    store.nodes("n1", "n2", **{ZONE: "a"})
    _use(store, **volume)
    assert store.message() == f"0/2 nodes are available: {reason}."
    store.now = 10.0
    store.nodes("n3", **{ZONE: "c"})
    assert store.choose() == "n3"


def test_a_bound_claim_without_its_volume_has_its_own_reason(store: Store) -> None:
    """VolumeBinding counts it node by node in kube-scheduler, VolumeZone refuses before: the volume is named."""
    store.nodes("n1")
    store.claim("c", "v")
    store.pod("c")
    assert store.message() == '0/1 nodes are available: persistentvolume "v" not found.'


@pytest.mark.parametrize(
    ("labels", "node"),
    [
        ({ZONE: "a__b"}, "n2"),
        ({ZONE: "c__b"}, "n2"),
        # One with an empty name is ignored.
        ({ZONE: "c____b"}, "n1"),
        ({ZONE: "__b"}, "n1"),
        # As kube-scheduler translates it.
        ({"failure-domain.beta.kubernetes.io/zone": "b"}, "n2"),
    ],
)
def test_a_volume_may_be_in_several_zones(labels: dict[str, str], node: str, store: Store) -> None:
    """The names are separated by two underscores."""
    store.nodes("n1", **{ZONE: "z"})
    store.nodes("n2", **{ZONE: "b"})
    _use(store, labels=labels)
    assert store.choose() == node


def test_the_zone_label_of_an_ephemeral_volume_is_ignored(store: Store) -> None:
    """As in kube-scheduler: it reads the zone only for the pod's own claims."""
    store.nodes("n1", **{ZONE: "z"})
    pod = store.make_pod("p", spec=EPHEMERAL)
    store.volume("v", labels={ZONE: "b"})
    store.claim("p-scratch", "v", owners=_owners(pod))
    store.show(pod)
    assert store.choose() == "n1"


def test_a_volume_is_matched_against_labels_not_against_fields_of_the_node(store: Store) -> None:
    """A term of fields alone holds everywhere, for kubelet too; one without anything nowhere."""
    store.nodes("n1", "n2")
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]
    for name, term, reason in (("v", {"matchFields": fields}, ""), ("w", {}, "didn't match PersistentVolume's")):
        store.now += 10.0
        store.volume(name, where={"required": {"nodeSelectorTerms": [term]}})
        store.claim(f"c{name}", name)
        store.pod(f"c{name}")
        assert (reason in store.message()) if reason else store.choose() == "n1"


def test_a_claim_for_one_pod_only_is_used_by_one_pod_at_a_time(store: Store) -> None:
    """Anywhere in the cluster; when that pod is gone, the next is requeued."""
    store.nodes("n1", "n2")
    store.volume("v")
    store.claim("c", "v", modes=["ReadWriteOncePod"])
    first = store.pod("c", node="n1")
    store.pod("c")
    reason = "due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
    assert store.message() == f"0/2 nodes are available: 2 node(s) unavailable {reason}."
    store.now = 10.0
    store.machine.pods(Removed(Identity(first.metadata.name, "default", first.metadata.uid)), store.now)
    assert store.choose() == "n1"


def test_an_ephemeral_volume_waits_for_its_claim_and_takes_no_other_pods(store: Store) -> None:
    """The claim is named after pod and volume, and must be the pod's own."""
    store.nodes("n1")
    pod = store.pod(spec=EPHEMERAL, name="p")
    waits = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch"'
    assert store.message() == f"0/1 nodes are available: {waits}."
    store.now = 10.0
    store.claim("p-scratch", "v")
    foreign = "PVC default/p-scratch was not created for pod default/p (pod is not owner)"
    assert store.message() == f"0/1 nodes are available: {foreign}."
    store.now = 20.0
    store.volume("v")
    store.claim("p-scratch", "v", owners=_owners(pod))
    assert store.choose() == "n1"


def test_a_claim_goes_where_a_volume_is_free_or_can_be_made(store: Store) -> None:
    """A class without a provisioner needs a volume that is there, of that class, large enough and nobody's."""
    store.storage_class("local", "kubernetes.io/no-provisioner")
    store.nodes("n1", "n2", "n3", "n4", "n5")
    store.volume("other-class", where=on(HOST, "n1"))
    store.volume("small", of="local", where=on(HOST, "n2"), size="1Mi")
    store.volume("taken", of="local", where=on(HOST, "n3"), claim={"namespace": "x", "name": "y"})
    store.volume("released", of="local", where=on(HOST, "n4"), phase="Released")
    store.claim("c", of="local")
    store.pod("c")
    none = "node(s) didn't find available persistent volumes to bind"
    assert store.message() == f"0/5 nodes are available: 5 {none}."
    store.now = 10.0
    store.volume("right", of="local", where=on(HOST, "n5"))
    order = store.pre_filter()
    assert (order.plan.node, [one.volume.metadata.name for one in order.plan.matches]) == ("n5", ["right"])


@pytest.mark.parametrize(
    ("volume", "claim"),
    [
        ({"spec": {"volumeMode": "Block"}}, {}),
        ({"spec": {"accessModes": ["ReadOnlyMany"]}}, {}),
        ({"labels": {"tier": "slow"}}, {"spec": {"selector": {"matchLabels": {"tier": "fast"}}}}),
        ({"spec": {"volumeAttributesClassName": "gold"}}, {}),
    ],
)
def test_a_volume_of_another_kind_is_not_taken(volume: Json, claim: Json, store: Store) -> None:
    store.storage_class("local", "kubernetes.io/no-provisioner")
    store.nodes("n1")
    store.volume("v", of="local", **volume)
    store.claim("c", of="local", **claim)
    store.pod("c")
    assert "didn't find available persistent volumes" in store.message()


def test_the_smallest_volume_that_fits_is_taken_and_each_once(store: Store) -> None:
    """Claims are served from the smallest up; volumes for all nodes and for one are found by different labels."""
    store.nodes("n1")
    for name, size, where in (
        ("big", "9Gi", None),
        ("mid", "3Gi", None),
        ("here", "4Gi", on(HOST, "n1")),
        ("small", "1Gi", on(HOST, "n1")),
        ("anywhere", "2Gi", None),
    ):
        store.volume(name, size=size, where=where)
    sizes = {"first": "1Gi", "second": "1500Mi", "third": "2500Mi", "fourth": "3500Mi"}
    for name, size in reversed(sizes.items()):
        store.claim(name, size=size)
    store.pod(*sorted(sizes))
    matches = {one.claim.metadata.name: one.volume.metadata.name for one in store.pre_filter().plan.matches}
    assert matches == {"first": "small", "second": "anywhere", "third": "mid", "fourth": "here"}


def test_a_volume_that_names_the_claim_is_its_own_whatever_else_is_free(store: Store) -> None:
    """And if that cannot be used, no other is taken."""
    store.nodes("n1", "n2")
    store.volume("own", where=on(HOST, "n2"), claim={"namespace": "default", "name": "c"}, size="5Gi")
    store.volume("free")
    store.storage_class("late", "kubernetes.io/no-provisioner")
    store.claim("c")
    store.pod("c")
    order = store.pre_filter()
    assert (order.plan.node, [one.volume.metadata.name for one in order.plan.matches]) == ("n2", ["own"])


def test_a_volume_is_made_only_where_its_class_allows(store: Store) -> None:
    """By the class's allowed topologies; a change of these requeues the pod."""
    zone_b = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]
    store.storage_class("zonal", allowedTopologies=zone_b)
    store.nodes("n1", **{ZONE: "a"})
    store.claim("c", of="zonal")
    store.pod("c")
    assert "didn't find available persistent volumes" in store.message()
    store.now = 10.0
    store.nodes("n2", **{ZONE: "b"})
    order = store.pre_filter()
    assert order.plan.node == "n2"
    assert [one.claim.metadata.name for one in order.plan.provisions] == ["c"]


def test_a_claim_whose_node_is_chosen_goes_there_only(store: Store) -> None:
    """Whichever scheduler selected it: a new leader finds what the one before had begun."""
    store.nodes("n1", "n2")
    store.claim("c", selected="n2")
    store.pod("c")
    assert store.pre_filter().plan.node == "n2"


def test_volumes_found_by_label_are_those_found_by_looking_at_all(store: Store) -> None:
    store.nodes("n1", "n2")
    store.storage_class("local", "kubernetes.io/no-provisioner")
    store.volume("v", of="local", where=on(HOST, "n1"))
    store.volume("v", of="local", where=on(HOST, "n2", "n3"))
    store.claim("c", of="local")
    store.pod("c")
    assert store.pre_filter().plan.node == "n2"
    store.gone(PersistentVolume, "v")
    store.claim("d", of="local")
    store.pod("d")
    assert "didn't find available persistent volumes" in store.message()


@pytest.mark.parametrize("free", [0, 7, 46, 69])
def test_of_many_nodes_the_one_with_a_free_disk_is_found(free: int, store: Store) -> None:
    """However many disks before it are taken, or too small; when it is taken too, every node is counted once."""
    store.storage_class("late", "kubernetes.io/no-provisioner")
    for number in range(70):
        store.nodes(name := f"n{number}")
        taken = None if number % 5 else {"namespace": "default", "name": "another", "uid": "u"}
        own = {} if number == free else {"size": "1Mi", "claim": taken}
        store.volume(f"v{number}", where=on(HOST, name), **own)
    store.claim("c")
    store.claim("d")
    store.pod("c")
    order = store.pre_filter()
    assert [match.volume.metadata.name for match in order.plan.matches] == [f"v{free}"]
    assert order.plan.node == f"n{free}"
    store.pod("d")
    assert store.message() == "0/70 nodes are available: 70 node(s) didn't find available persistent volumes to bind."


def test_claims_that_any_volume_could_serve_are_judged_once_and_not_on_every_node(store: Store) -> None:
    """A claim's selector was read, and compared with each volume, again for each node: 8 claims took seconds."""
    store.storage_class("late", "kubernetes.io/no-provisioner")
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
    assert "300 node(s) didn't find available persistent volumes to bind." in store.message()
    assert time.thread_time() - began < 2.0
