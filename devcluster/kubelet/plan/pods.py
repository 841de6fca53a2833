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


class SeccompProfile(msgspec.Struct, frozen=True):
    type: str = ""


class SecurityContext(msgspec.Struct, frozen=True, rename="camel"):
    """A container's security context, and the fields that a pod may set for all of its containers."""

    capabilities: Capabilities | None = None
    privileged: bool = False
    run_as_user: int | None = None
    run_as_group: int | None = None
    read_only_root_filesystem: bool = False
    allow_privilege_escalation: bool = True
    seccomp_profile: SeccompProfile | None = None


class Port(msgspec.Struct, frozen=True, rename="camel"):
    container_port: int
    name: str = ""


class HttpGet(msgspec.Struct, frozen=True):
    port: int | str
    path: str = "/"


class Probe(msgspec.Struct, frozen=True, rename="camel"):
    http_get: HttpGet | None = None
    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    failure_threshold: int = 3


class VolumeMount(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    mount_path: str
    read_only: bool = False
    sub_path: str = ""


class KeyToPath(msgspec.Struct, frozen=True):
    key: str
    path: str


class HostPath(msgspec.Struct, frozen=True):
    path: str
    type: str = ""


class ConfigMapSource(msgspec.Struct, frozen=True):
    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    optional: bool = False


class TokenSource(msgspec.Struct, frozen=True, rename="camel"):
    path: str
    expiration_seconds: int | None = None


class DownwardItem(msgspec.Struct, frozen=True, rename="camel"):
    path: str
    field_ref: FieldRef


class DownwardSource(msgspec.Struct, frozen=True):
    items: tuple[DownwardItem, ...] = ()


class ProjectedSource(msgspec.Struct, frozen=True, rename="camel"):
    config_map: ConfigMapSource | None = None
    service_account_token: TokenSource | None = None
    downward_api: DownwardSource | None = msgspec.field(default=None, name="downwardAPI")


class ProjectedVolume(msgspec.Struct, frozen=True):
    sources: tuple[ProjectedSource, ...] = ()


class Volume(msgspec.Struct, frozen=True, rename="camel"):
    """One volume; a kind that is not read here is an empty folder."""

    name: str
    host_path: HostPath | None = None
    config_map: ConfigMapSource | None = None
    projected: ProjectedVolume | None = None


class ContainerSpec(msgspec.Struct, frozen=True, rename="camel"):
    """One container of the pod's spec; an init container with restartPolicy Always is a sidecar."""

    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[Env, ...] = ()
    security_context: SecurityContext | None = None
    restart_policy: str = ""
    image_pull_policy: str = "IfNotPresent"
    ports: tuple[Port, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    startup_probe: Probe | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None

    @property
    def probes(self) -> tuple[Probe, ...]:
        every = (self.startup_probe, self.liveness_probe, self.readiness_probe)
        return tuple(probe for probe in every if probe is not None)

    @property
    def is_sidecar(self) -> bool:
        return self.restart_policy == "Always"


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    containers: tuple[ContainerSpec, ...] = ()
    init_containers: tuple[ContainerSpec, ...] = ()
    restart_policy: str = "Always"
    host_network: bool = False
    host_pid: bool = msgspec.field(default=False, name="hostPID")
    termination_grace_period_seconds: int = 30
    service_account_name: str = "default"
    security_context: SecurityContext | None = None
    volumes: tuple[Volume, ...] = ()


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
        """Return the seconds between SIGTERM and SIGKILL: the deletion's, else the spec's."""
        asked = self.metadata.deletion_grace_period_seconds
        return self.spec.termination_grace_period_seconds if asked is None else asked

    def container(self, name: str) -> ContainerSpec:
        every: Sequence[ContainerSpec] = (*self.spec.init_containers, *self.spec.containers)
        return next(container for container in every if container.name == name)
