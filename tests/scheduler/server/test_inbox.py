"""What waits to be taken in: in order, and of a node's changes only the newest."""

from typing import Any

from mooring.kube.events import Changed, Identity, Removed, Synced
from scheduler.kube.objects import Node, Pod
from scheduler.server.watches import EndOfList, Inbox, WatchEvent
from tests.scheduler.conftest import MakeNode, MakePod


def about(kind: type[Any], event: Any) -> WatchEvent:
    return WatchEvent(kind, event)


def taken(inbox: Inbox) -> list[Any]:
    messages = []
    while inbox:
        message = inbox.take()
        messages.append(message.event if isinstance(message, WatchEvent) else message)
    return messages


def test_a_node_has_one_change_that_waits_and_it_is_the_newest(make_node: MakeNode, make_pod: MakePod) -> None:
    inbox = Inbox()
    changes = [Changed(Identity("n1", resource_version=str(version)), make_node("n1")) for version in range(1000)]
    other, pod = Changed(Identity("n2"), make_node("n2")), Changed(Identity("p"), make_pod("p"))
    for change in changes[:500]:
        inbox.put(about(Node, change))
    inbox.put(about(Node, other))
    inbox.put(about(Pod, pod))
    for change in changes[500:]:
        inbox.put(about(Node, change))
    assert taken(inbox) == [changes[-1], other, pod]
    inbox.put(about(Node, changes[0]))
    assert taken(inbox) == [changes[0]]


def test_a_change_never_comes_before_what_was_said_of_nodes_before_it(make_node: MakeNode) -> None:
    """A node that is deleted and made again; a whole list."""
    inbox = Inbox()
    old, new = (Changed(Identity("n1", resource_version=version), make_node("n1")) for version in "12")
    listed = Synced[Node](())
    for event in (old, Removed(Identity("n1")), new, listed, old, new):
        inbox.put(about(Node, event))
    assert taken(inbox) == [old, Removed(Identity("n1")), new, listed, new]


def test_pods_changes_all_stay(make_node: MakeNode, make_pod: MakePod) -> None:
    """Who is told of a change depends on what changed since the one before."""
    inbox = Inbox()
    pods = [Changed(Identity("p", resource_version=str(version)), make_pod("p")) for version in range(3)]
    for pod in pods:
        inbox.put(about(Pod, pod))
    inbox.put(EndOfList(Pod, 1))
    assert taken(inbox) == [*pods, EndOfList(Pod, 1)]
    inbox.put(about(Node, Changed(Identity("n1"), make_node("n1"))))
    inbox.clear()
    assert taken(inbox) == []
