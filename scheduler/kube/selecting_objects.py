"""Objects that select pods: controllers, services, disruption budgets; and namespaces, whose labels terms select."""

import msgspec

from scheduler.kube.objects import Int32, LabelSelector, Metadata, Struct


class Namespace(Struct):
    metadata: Metadata


class SelectingSpec(Struct):
    """The selector of a ReplicaSet, a StatefulSet or a PodDisruptionBudget."""

    selector: LabelSelector | None = None


class ReplicaSet(Struct):
    metadata: Metadata
    spec: SelectingSpec = msgspec.field(default_factory=SelectingSpec)


class StatefulSet(Struct):
    metadata: Metadata
    spec: SelectingSpec = msgspec.field(default_factory=SelectingSpec)


class MappingSpec(Struct):
    """The selector of a Service or a ReplicationController: plain labels."""

    selector: dict[str, str] | None = None


class Service(Struct):
    metadata: Metadata
    spec: MappingSpec = msgspec.field(default_factory=MappingSpec)


class ReplicationController(Struct):
    metadata: Metadata
    spec: MappingSpec = msgspec.field(default_factory=MappingSpec)


class BudgetStatus(Struct):
    """How many more pods may be disrupted, and by name the pods whose eviction the API server has already admitted."""

    disruptions_allowed: Int32 = 0
    disrupted_pods: dict[str, str | None] | None = None


class PodDisruptionBudget(Struct):
    metadata: Metadata
    spec: SelectingSpec = msgspec.field(default_factory=SelectingSpec)
    status: BudgetStatus = msgspec.field(default_factory=BudgetStatus)
