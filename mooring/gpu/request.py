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
_KNOWN = frozenset({"count", "model", "memory_mb", "together", "vfs"})
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
        every = (self.count, self.model, self.memory_mb, self.together, self.vfs, self.limits)
        object.__setattr__(self, "_hash", hash(every))

    def __hash__(self) -> int:
        return self._hash


def read_gpu_request(text: str | None, limits: Sequence[ContainerLimit], interfaces: int = 0) -> GpuRequest | None:
    """Read a pod's request from the annotation's value (None without one) and its limits; None without both.

    ``interfaces`` is the number of VFs that the pod requests. Raise AnnotationError.
    """
    limited, asking = counted(limits), tuple(limit for limit in limits if limit.count)
    if text is None:
        if limited > MOST_GPUS:
            raise AnnotationError(KEY, "", f"limits of {RESOURCE!r} add up to {limited}, more than {MOST_GPUS}")
        return GpuRequest(limited, limits=asking) if limited else None
    if len(text) > MOST_REQUEST_CHARACTERS:
        raise AnnotationError(KEY, "", f"longer than {MOST_REQUEST_CHARACTERS} characters")
    whole = parse(text, KEY, AnnotationError)
    document = whole.fields(_KNOWN)
    if not limited:
        whole.fail(f"no container has a limit of {RESOURCE!r}, which sets how many GPUs it gets")
    count = document.optional("count", lambda value: value.integer(1, MOST_GPUS))
    if count is not None and count != limited:
        document.required("count").fail(f"the containers' limits of {RESOURCE!r} add up to {limited}, not {count}")
    if limited > MOST_GPUS:
        whole.fail(f"limits of {RESOURCE!r} add up to {limited}, more than {MOST_GPUS}")
    vfs = document.optional("vfs", _vfs)
    if vfs is not None and not interfaces:
        document.required("vfs").fail("the pod requests no VFs")
    return GpuRequest(
        count=limited,
        model=document.optional("model", _model),
        memory_mb=document.optional("memory_mb", lambda value: value.integer(1, MOST_MEMORY_MB)) or 0,
        together=document.optional("together", _together),
        vfs=vfs,
        limits=asking,
    )


def counted(limits: Sequence[ContainerLimit]) -> int:
    """Return how many GPUs Kubernetes counts for a pod: the most that it uses at once.

    Init containers run one after another, each beside the sidecars before it; the containers run beside all sidecars.
    Source: ``AggregateContainerRequests`` of k8s.io/component-helpers/resource.
    """
    sidecars, at_once = 0, 0
    for limit in limits:
        if limit.role == "sidecar":
            sidecars += limit.count
            at_once = max(at_once, sidecars)
        elif limit.role == "init":
            at_once = max(at_once, sidecars + limit.count)
    return max(at_once, sidecars + sum(limit.count for limit in limits if limit.role == "main"))


def containers_units(limits: Sequence[ContainerLimit], units: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Distribute ``units``, as many as `counted` returns, to the containers; return them by container name.

    Sidecars come first, then the containers, each with its own units. Init containers share units with the containers:
    each gets the first units that no sidecar before it has.
    """
    found: dict[str, tuple[str, ...]] = {}
    taken = 0
    for limit in limits:
        if limit.role == "main":
            continue
        found[limit.name] = tuple(units[taken : taken + limit.count])
        taken += limit.count if limit.role == "sidecar" else 0
    for limit in limits:
        if limit.role == "main":
            found[limit.name] = tuple(units[taken : taken + limit.count])
            taken += limit.count
    return found


def _model(value: Value) -> str:
    return value.string(longest=LONGEST_MODEL)


def _together(value: Value) -> Together:
    return value.choice("link", "switch", "numa")


def _vfs(value: Value) -> Vfs:
    return value.choice("switch")
