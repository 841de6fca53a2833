"""What a pod asks for in GPUs: the limit ``mooring.dev/gpu`` of its containers, and the annotation beside it.

    mooring.dev/request.gpu: {"count":4,"model":"*H100*","memory_mb":80000,"together":"link","vfs":"switch"}

The limits say how many GPUs each container gets, and alone are a request too. ``count`` is the same as Kubernetes
counts for the pod, or absent: a quota counts limits, so an annotation without them would pass it by. Unknown fields are
errors.
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
# link: one group of links. switch: below one bridge that is no root port. numa: on one NUMA node.
Together = Literal["link", "switch", "numa"]
# switch: interface k under the lowest bridge that GPU k has in common with any PF that the interface admits.
Vfs = Literal["switch"]
# A sidecar is an init container that goes on beside the containers (restartPolicy Always).
Role = Literal["init", "sidecar", "main"]


@dataclass(frozen=True, slots=True)
class ContainerLimit:
    """How many GPUs a container limits."""

    name: str
    count: int
    role: Role = "main"


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """A pod's request: ``count`` GPUs that match a glob for the model and have ``memory_mb`` MiB at least.

    ``limits`` are those of all containers in the pod's order: init containers and sidecars, then the others.
    """

    count: int
    model: str | None = None
    memory_mb: int = 0
    together: Together | None = None
    vfs: Vfs | None = None
    limits: tuple[ContainerLimit, ...] = ()
    # What is found for a request is kept by it. Of all fields: a tenant may make many requests that are nearly equal.
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        every = (self.count, self.model, self.memory_mb, self.together, self.vfs, self.limits)
        object.__setattr__(self, "_hash", hash(every))

    def __hash__(self) -> int:
        return self._hash


def read_gpu_request(text: str | None, limits: Sequence[ContainerLimit], interfaces: int = 0) -> GpuRequest | None:
    """Read the annotation (None: there is none) beside the limits; None for a pod without either.

    Raise AnnotationError. ``interfaces`` is how many VFs the pod requests.
    """
    limited, asking = counted(limits), tuple(limit for limit in limits if limit.count)
    if text is None:
        if limited > MOST_GPUS:
            raise AnnotationError(KEY, "", f"limits of {RESOURCE!r} are {limited} in all, more than {MOST_GPUS}")
        return GpuRequest(limited, limits=asking) if limited else None
    if len(text) > MOST_REQUEST_CHARACTERS:
        raise AnnotationError(KEY, "", f"longer than {MOST_REQUEST_CHARACTERS} characters")
    whole = parse(text, KEY, AnnotationError)
    document = whole.fields(_KNOWN)
    if not limited:
        whole.fail(f"no container has a limit of {RESOURCE!r}, which says how many GPUs it gets")
    count = document.optional("count", lambda value: value.integer(1, MOST_GPUS))
    if count is not None and count != limited:
        document.required("count").fail(f"the containers' limits of {RESOURCE!r} are {limited} in all, not {count}")
    if limited > MOST_GPUS:
        whole.fail(f"limits of {RESOURCE!r} are {limited} in all, more than {MOST_GPUS}")
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
    """Return how many GPUs Kubernetes counts for a pod: the most that it has at once.

    Init containers run one after another, each beside the sidecars before it, and the containers beside all sidecars.
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
    """Return which units each container gets, of as many as `counted` says.

    Sidecars come first, then the containers, each with units of its own. An init container shares: it gets the first
    ones that no sidecar before it has.
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
