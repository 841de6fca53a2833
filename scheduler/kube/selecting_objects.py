"""Disruption budgets, which select pods, and namespaces, whose labels terms select.

As in `scheduler.kube.objects`, only the fields that the scheduler reads.
"""

import msgspec

from scheduler.kube.objects import Int32, LabelSelector, Metadata, Struct


class Namespace(Struct):
    metadata: Metadata


class BudgetSpec(Struct):
    selector: LabelSelector | None = None


class BudgetStatus(Struct):
    """How many more pods may be disrupted, and by name the pods whose eviction the API server has already admitted."""

    disruptions_allowed: Int32 = 0
    disrupted_pods: dict[str, str | None] | None = None


class PodDisruptionBudget(Struct):
    metadata: Metadata
    spec: BudgetSpec = msgspec.field(default_factory=BudgetSpec)
    status: BudgetStatus = msgspec.field(default_factory=BudgetStatus)
