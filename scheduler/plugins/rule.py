"""What a rule is: it looks at a pod once, then at each node, and says in words why a node will not do.

`Rule.prepare` is what kube-scheduler calls PreFilter: it returns the filter for this pod, or None where the rule has
nothing to say about it. The filter returns the reasons against one node, none if it passes. Both are pure, so answers
may be kept as long as the pod's shape and the node's view are the same. Rules come in the order in which kube-scheduler
runs them; a node's reasons are those of the first rule that refuses it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from scheduler.cluster import NodeView
from scheduler.queue import Happening
from scheduler.task import Task

Filter = Callable[[NodeView], tuple[str, ...]]
PASSES: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """A named rule; ``helped_by`` is what can turn its refusal around. ``prepare`` takes the UNIX time too."""

    name: str
    prepare: Callable[[Task, float], Filter | None]
    helped_by: Happening


@dataclass(frozen=True, slots=True)
class Preference:
    """A named scorer: from 0 (worst) to 100 for a node that passed all rules, times ``weight``."""

    name: str
    weight: int
    score: Callable[[Task, NodeView], float]
