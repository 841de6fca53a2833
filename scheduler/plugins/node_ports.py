"""NodePorts: a host port is taken once, by protocol and address; 0.0.0.0 (or none) is every address."""

from collections.abc import Iterable

from scheduler.cluster import NodeView
from scheduler.objects import Port
from scheduler.plugins.rule import PASSES, Filter, Rule
from scheduler.queue import Happening
from scheduler.task import Task

_ANY = ("", "0.0.0.0")


def prepare(task: Task, _now: float) -> Filter | None:
    wanted = task.ports
    if not wanted:
        return None

    def refuse(node: NodeView) -> tuple[str, ...]:
        taken = any(clash(port, node.ports) for port in wanted)
        return ("node(s) didn't have free ports for the requested pod ports",) if taken else PASSES

    return refuse


def clash(port: Port, taken: Iterable[Port]) -> bool:
    """Say whether a port is among those taken."""
    return any(
        port.host_port == other.host_port
        and port.protocol == other.protocol
        and (port.host_ip == other.host_ip or port.host_ip in _ANY or other.host_ip in _ANY)
        for other in taken
    )


RULE = Rule("NodePorts", prepare, Happening.NODE | Happening.POD_GONE)
