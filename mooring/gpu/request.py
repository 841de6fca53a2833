"""A pod's request for GPUs: the limits ``mooring.dev/gpu`` of its containers, and an optional annotation.

    mooring.dev/request.gpu: {"count":4,"model":"*H100*","memory_mb":80000,"together":"link","vfs":"switch"}

The limits set how many GPUs each container gets; they are a request even without the annotation. ``count`` is absent or
equal to the count of Kubernetes for the pod's limits, because quotas count only limits. Unknown fields are errors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from mooring import names
from mooring.errors import AnnotationError
from mooring.gpu.inventory import LONGEST_MODEL, MOST_GPUS, MOST_MEMORY_MB
from mooring.parsing import Value, parse

KEY = f"{names.REQUEST_OF}gpu"
RESOURCE = "mooring.dev/gpu"
MOST_REQUEST_CHARACTERS = 16_384
_FIELDS = frozenset({"count", "model", "memory_mb", "together", "vfs"})
# link: in one group of linked GPUs. switch: below one bridge that is not a root port. numa: on one NUMA node.
Together = Literal["link", "switch", "numa"]
# switch: interface k is below the lowest bridge that GPU k shares with any PF that fits the interface.
Vfs = Literal["switch"]
# A sidecar is an init container with restartPolicy Always, which runs beside the containers.
Role = Literal["init", "sidecar", "main"]


@dataclass(frozen=True, slots=True)
class ContainerLimit:
    """The number of GPUs in a container's limits."""

    name: str
    count: int
    role: Role = "main"


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """A pod's request: ``count`` GPUs whose model matches a glob and that have at least ``memory_mb`` MiB.

    ``limits`` are those of all containers in the pod's order: init containers and sidecars, then the others.
    """

    count: int
    model: str | None = None
    memory_mb: int = 0
    together: Together | None = None
    vfs: Vfs | None = None
    limits: tuple[ContainerLimit, ...] = ()
    # Results are cached by request. The hash covers all fields, because a tenant can make many similar requests.
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        values = (self.count, self.model, self.memory_mb, self.together, self.vfs, self.limits)
        object.__setattr__(self, "_hash", hash(values))

    def __hash__(self) -> int:
        return self._hash


def read_gpu_request(text: str | None, limits: Sequence[ContainerLimit], interfaces: int = 0) -> GpuRequest | None:
    """Read a pod's request from the annotation's value (None without one) and its limits; None without both.

    ``interfaces`` is the number of VFs that the pod requests. Raise AnnotationError.
    """
    limit_sum, gpu_limits = gpu_count(limits), tuple(limit for limit in limits if limit.count)
    if text is None:
        if limit_sum > MOST_GPUS:
            raise AnnotationError(KEY, "", f"limits of {RESOURCE!r} add up to {limit_sum}, more than {MOST_GPUS}")
        return GpuRequest(limit_sum, limits=gpu_limits) if limit_sum else None
    if len(text) > MOST_REQUEST_CHARACTERS:
        raise AnnotationError(KEY, "", f"longer than {MOST_REQUEST_CHARACTERS} characters")
    whole = parse(text, KEY, AnnotationError)
    document = whole.fields(_FIELDS)
    if not limit_sum:
        whole.fail(f"no container has a limit of {RESOURCE!r}, which sets how many GPUs it gets")
    count = document.optional("count", lambda value: value.integer(1, MOST_GPUS))
    if count is not None and count != limit_sum:
        document.required("count").fail(f"the containers' limits of {RESOURCE!r} add up to {limit_sum}, not {count}")
    if limit_sum > MOST_GPUS:
        whole.fail(f"limits of {RESOURCE!r} add up to {limit_sum}, more than {MOST_GPUS}")
    vfs = document.optional("vfs", _vfs)
    if vfs is not None and not interfaces:
        document.required("vfs").fail("the pod requests no VFs")
    return GpuRequest(
        count=limit_sum,
        model=document.optional("model", _model),
        memory_mb=document.optional("memory_mb", lambda value: value.integer(1, MOST_MEMORY_MB)) or 0,
        together=document.optional("together", _together),
        vfs=vfs,
        limits=gpu_limits,
    )


def gpu_count(limits: Sequence[ContainerLimit]) -> int:
    """Return how many GPUs Kubernetes counts for a pod: the most that it uses at once.

    Init containers run one after another, each beside the sidecars before it; the containers run beside all sidecars.
    Source: ``AggregateContainerRequests`` of k8s.io/component-helpers/resource.
    """
    sidecars, peak = 0, 0
    for limit in limits:
        if limit.role == "sidecar":
            sidecars += limit.count
            peak = max(peak, sidecars)
        elif limit.role == "init":
            peak = max(peak, sidecars + limit.count)
    return max(peak, sidecars + sum(limit.count for limit in limits if limit.role == "main"))


def containers_units(limits: Sequence[ContainerLimit], units: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Distribute ``units``, as many as `gpu_count` returns, to the containers; return them by container name.

    Sidecars come first, then the containers, each with its own units. Init containers share units with the containers:
    each gets the first units that no sidecar before it has.
    """
    units_of_container: dict[str, tuple[str, ...]] = {}
    next_index = 0
    for limit in limits:
        if limit.role == "main":
            continue
        units_of_container[limit.name] = tuple(units[next_index : next_index + limit.count])
        next_index += limit.count if limit.role == "sidecar" else 0
    for limit in limits:
        if limit.role == "main":
            units_of_container[limit.name] = tuple(units[next_index : next_index + limit.count])
            next_index += limit.count
    return units_of_container


def _model(value: Value) -> str:
    return value.string(longest=LONGEST_MODEL)


def _together(value: Value) -> Together:
    return value.choice("link", "switch", "numa")


def _vfs(value: Value) -> Vfs:
    return value.choice("switch")
