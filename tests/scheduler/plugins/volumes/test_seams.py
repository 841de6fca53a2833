"""Events between a decision and its bind while a pod waits for volumes: its volume taken away, its own changes."""

from mooring.parsing import MAX_BYTES
from scheduler.cycle.decisions import Bind
from tests.scheduler.group_life import annotated
from tests.scheduler.story import play, stories
from tests.scheduler.volume_store import HOST, Store, VolumeStory, on

MATCHED = "by_hand | nodes n1 | volume v | claim c | pod p c | decide > n1 c=v"
NONE_FREE = "node(s) didn't find available persistent volumes to bind"
NO_VOLUME = 'binding volumes: failed to check binding: persistentvolume "v" not found'
STORIES = {
    # The change does not concern the claim: the pods that wait for the volume are found all the same.
    "a volume that no longer names its claim ends the wait at once": f"""
        {MATCHED} | answer v=4 | volume v for=c | decide | volume v
        | decide > binding volumes: ClaimRef got reset for pv "v\"""",
    "an assumed volume that is deleted before its claim shows ends the wait at once": f"""
        {MATCHED} | answer v=1000 | decide | lose v | decide > {NO_VOLUME}""",
    # A list may skip the moment at which the volume named the claim.
    "an assumed volume that is not listed any more ends the wait at once": f"""
        {MATCHED} | answer v=1000 | decide | unlist | decide > {NO_VOLUME}""",
    # The first pod's claim could not be written and the pod is deleted: no event of the API concerns the second.
    "an assumed volume that is given up requeues pods that wait for one": f"""
        {MATCHED} | claim d | pod q d | decide > 1 {NONE_FREE}.
        | answer forbidden | terminate p | wait 10 | decide > n1 d=v""",
    # They share a claim; the first one took the node's capacity and was deleted before anything was written.
    "a selected node that is given up no longer restricts the claim's other pods": f"""
        nodes n1 | claim c | pod p c cpu=5 | decide > n1 c=new | pod q c to=n2 | nodes n2
        | decide > 1 {NONE_FREE}, 1 node(s) didn't match Pod's node affinity/selector.
        | terminate p | wait 10 | decide > n2 c=new""",
}


@stories(STORIES)
def test_a_pod_that_waits_for_volumes(story: str, store: Store) -> None:
    play(VolumeStory(store), story)


def test_annotations_that_have_grown_too_large_meanwhile_are_not_bound(store: Store) -> None:
    """A Binding that makes them too large would poison the pod; it comes again when they are smaller."""
    store.nodes("n1")
    store.claim("c")
    pod = store.pod("c")
    store.prepared(store.pre_filter())
    store.show(annotated(pod, {"a": "x" * MAX_BYTES}))
    store.claim("c", "v", selected="n1")
    store.volume("v", where=on(HOST, "n1"), claim={"namespace": "default", "name": "c", "uid": "u-c"})
    assert not any(isinstance(one, Bind) for one in store.run())
    store.now = 10.0
    assert "annotations would have" in store.message()
    store.show(pod)
    store.now = 30.0
    assert store.choose() == "n1"
