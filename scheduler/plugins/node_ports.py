"""NodePorts: a host port is taken once, by protocol and address; 0.0.0.0 (or none) is every address."""

from scheduler.columns import HostPort, Nodes
from scheduler.plugins.rule import Filter, Rule, refuse_by
from scheduler.queue import Happening
from scheduler.task import Task

_ANY = ("", "0.0.0.0")
_REASON = "node(s) didn't have free ports for the requested pod ports"


def prepare(task: Task, nodes: Nodes) -> Filter | None:
    wanted = task.ports
    if not wanted:
        return None

    def judge(taken: frozenset[HostPort]) -> str:
        return _REASON if any(clash(port, other) for port in wanted for other in taken) else ""

    return lambda rows: refuse_by(nodes.ports, judge, rows)


def clash(port: HostPort, other: HostPort) -> bool:
    """Say whether two ports (number, protocol, address) cannot be on one host."""
    same = port[:2] == other[:2]
    return same and (port[2] == other[2] or port[2] in _ANY or other[2] in _ANY)


RULE = Rule("NodePorts", prepare, Happening.NODE_ADDED | Happening.PORTS_FREED)
