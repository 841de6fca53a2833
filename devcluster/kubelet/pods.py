"""The part of a pod that the kubelet stand-in acts on, decoded from the API server's JSON. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

_TERMINAL = ("Succeeded", "Failed")


class FieldRef(msgspec.Struct, frozen=True, rename="camel"):
    field_path: str


class EnvSource(msgspec.Struct, frozen=True, rename="camel"):
    field_ref: FieldRef | None = None


class Env(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    value: str = ""
    value_from: EnvSource | None = None


class Capabilities(msgspec.Struct, frozen=True):
    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class SecurityContext(msgspec.Struct, frozen=True):
    capabilities: Capabilities | None = None
    privileged: bool = False


class ContainerSpec(msgspec.Struct, frozen=True, rename="camel"):
    """One container of the pod's spec; an init container that is restarted always is a sidecar."""

    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[Env, ...] = ()
    security_context: SecurityContext | None = None
    restart_policy: str = ""

    @property
    def is_sidecar(self) -> bool:
        return self.restart_policy == "Always"


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    containers: tuple[ContainerSpec, ...] = ()
    init_containers: tuple[ContainerSpec, ...] = ()
    restart_policy: str = "Always"
    host_network: bool = False
    termination_grace_period_seconds: int = 30


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = "Pending"
    start_time: str | None = None


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str
    uid: str
    annotations: Mapping[str, str] | None = None
    labels: Mapping[str, str] | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None


class Pod(msgspec.Struct, frozen=True):
    """A pod as the API server has it now."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_deleted(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def is_terminal(self) -> bool:
        return self.status.phase in _TERMINAL

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.metadata.namespace}/pods/{self.metadata.name}"

    @property
    def grace_s(self) -> int:
        """Return the seconds between SIGTERM and SIGKILL: the deletion's word, else the spec's."""
        asked = self.metadata.deletion_grace_period_seconds
        return self.spec.termination_grace_period_seconds if asked is None else asked

    def container(self, name: str) -> ContainerSpec:
        every: Sequence[ContainerSpec] = (*self.spec.init_containers, *self.spec.containers)
        return next(container for container in every if container.name == name)
