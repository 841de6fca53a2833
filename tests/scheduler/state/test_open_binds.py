"""A namespace whose Binds fail or wait for a webhook: it gets few at once, and the others feel nothing."""

import pytest

from tests.scheduler.state.cluster import Cluster
from tests.scheduler.story import play

HOOK = 'Internal error occurred: failed calling webhook "hook.example.com": connection refused'


def denied(name: str, namespace: str = "bad") -> str:
    """Return the step in which a Binding is denied."""
    return f"answer {namespace}/{name} denied {HOOK} > {namespace}/{name} Unschedulable: binding denied: {HOOK}"


def pods(numbers: range) -> str:
    return " | ".join(f"pod bad/{number}" for number in numbers)


STORIES = {
    # Nothing was written.
    "a denied Bind releases its room at once, its owner is told of the webhook, and it comes again": f"""
        node n1 | pod bad/a | bind > bad/a | at 0.1 | {denied("a")} | at 0.2 | pod b | bind > b | at 0.3
        | answer b bound | at 0.4 | gone b | at 0.5 | bind | at 1.1 | bind > bad/a""",
    # Its other pods wait in the queue and reserve nothing.
    "a namespace that waits for its webhook takes little room until a Bind succeeds": f"""
        node n1 20 | {pods(range(4))} | bind > bad/0 bad/1 bad/2 bad/3 | at 2 | {pods(range(4, 10))} | pod other
        | bind > other | due > 10.0 | at 2.1 | {denied("0")} | bind > bad/0 | at 2.2 | answer bad/1 bound
        | answer bad/2 bound | answer bad/3 bound | at 2.3 | bind > bad/4 bad/5 bad/6 bad/7 bad/8 bad/9""",
    # As of pods that are too large for etcd, whose Binding is answered with 500 for ever.
    "pods that nobody gets an answer for hold up their namespace for some seconds": f"""
        node n1 20 | {pods(range(4))} | bind > bad/0 bad/1 bad/2 bad/3 | at 2 | pod bad/4 | bind | at 10.1 | tick
        | bind > bad/4""",
    "where Binds are denied at once few are tried at a time, and no pod that is deleted": f"""
        node n1 20 | pod bad/a | bind > bad/a | at 0.1 | {denied("a")} | at 0.2 | {pods(range(9))}
        | bind > bad/0 bad/1 bad/2 bad/3 | depth backoff > 6 | at 0.3 | gone bad/4 | gone bad/5 | at 0.4
        | {denied("0")} | {denied("1")} | {denied("2")} | {denied("3")} | at 0.5 | bind > bad/6 bad/7 bad/8""",
    "a group of a namespace in trouble waits too": f"""
        node n1 20 | {pods(range(4))} | bind > bad/0 bad/1 bad/2 bad/3 | at 2 | member bad/m0 | member bad/m1 | at 4
        | tick | bind | at 4.1 | answer bad/0 bound | bind > bad/m0 bad/m1""",
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_binds_of_a_namespace_in_trouble(story: str, cluster: Cluster) -> None:
    play(cluster, story)
