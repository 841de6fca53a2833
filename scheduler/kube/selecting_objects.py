"""Objects that select pods: controllers, services, disruption budgets; and namespaces, whose labels terms select."""

import msgspec

from scheduler.kube.objects import Int32, LabelSelector, Object, Struct


class Namespace(Object):
    """A namespace; only its metadata is read."""


class SelectingSpec(Struct):
    """The selector of a ReplicaSet, a StatefulSet or a PodDisruptionBudget."""

    selector: LabelSelector | None = None


class ReplicaSet(Object):
    spec: SelectingSpec = msgspec.field(default_factory=SelectingSpec)


class StatefulSet(Object):
    spec: SelectingSpec = msgspec.field(default_factory=SelectingSpec)


class MappingSpec(Struct):
    """The selector of a Service or a ReplicationController: plain labels."""

    selector: dict[str, str] | None = None


class Service(Object):
    spec: MappingSpec = msgspec.field(default_factory=MappingSpec)


class ReplicationController(Object):
    spec: MappingSpec = msgspec.field(default_factory=MappingSpec)


class BudgetStatus(Struct):
    """How many more pods may be disrupted, and by name the pods whose eviction the API server has already admitted."""

    disruptions_allowed: Int32 = 0
    disrupted_pods: dict[str, str | None] | None = None


class PodDisruptionBudget(Object):
    spec: SelectingSpec = msgspec.field(default_factory=SelectingSpec)
    status: BudgetStatus = msgspec.field(default_factory=BudgetStatus)
