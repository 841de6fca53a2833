"""The fake runtime's sandboxes and containers: records in memory, and their form in CRI."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cri_api.v1 import api_pb2 as cri
from google.protobuf.json_format import MessageToDict

from devcluster.runtime.child import Child
from devcluster.runtime.cnicalls import Attachment


@dataclass(slots=True)
class Sandbox:
    """One pod sandbox; ``netns`` is None for a pod on the host's network and once the namespace is gone."""

    id: str
    config: Any
    created_ns: int
    netns: Path | None
    ready: bool = True
    ips: tuple[str, ...] = ()

    @property
    def on_host_network(self) -> bool:
        return bool(self.config.linux.security_context.namespace_options.network == cri.NODE)

    def attachment(self) -> Attachment:
        pod = self.config.metadata
        netns = "" if self.netns is None else str(self.netns)
        annotations = dict(self.config.annotations) or None
        return Attachment(self.id, netns, "eth0", pod.namespace, pod.name, pod.uid, annotations)

    @property
    def state(self) -> Any:
        return cri.SANDBOX_READY if self.ready else cri.SANDBOX_NOTREADY

    def listed(self) -> Any:
        return cri.PodSandbox(id=self.id, state=self.state, created_at=self.created_ns, **_described(self.config))

    def status(self) -> Any:
        first, *others = self.ips or ("",)
        network = cri.PodSandboxNetworkStatus(ip=first, additional_ips=[cri.PodIP(ip=ip) for ip in others])
        described = _described(self.config)
        return cri.PodSandboxStatus(
            id=self.id, state=self.state, created_at=self.created_ns, network=network, **described
        )

    def info(self) -> str:
        """Return the verbose part of the status where containerd has it: the configuration and the netns path."""
        network = {"type": "network", "path": "" if self.netns is None else str(self.netns)}
        spec = {"linux": {"namespaces": [network]}}
        return json.dumps({"config": _document(self.config), "runtimeSpec": spec})


@dataclass(slots=True)
class Container:
    """One container; ``child`` is its process once started. Times are ns since the epoch, 0 where not yet."""

    id: str
    sandbox: Sandbox
    config: Any
    created_ns: int
    started_ns: int = 0
    finished_ns: int = 0
    exit_code: int = 0
    child: Child | None = field(default=None, repr=False)

    @property
    def state(self) -> Any:
        if not self.started_ns:
            return cri.CONTAINER_CREATED
        return cri.CONTAINER_EXITED if self.finished_ns else cri.CONTAINER_RUNNING

    def listed(self) -> Any:
        shown = _described(self.config)
        image = self.config.image
        return cri.Container(
            id=self.id,
            pod_sandbox_id=self.sandbox.id,
            image=image,
            image_ref=image.image,
            state=self.state,
            created_at=self.created_ns,
            **shown,
        )

    def status(self) -> Any:
        reason = ("Completed" if self.exit_code == 0 else "Error") if self.finished_ns else ""
        return cri.ContainerStatus(
            id=self.id,
            state=self.state,
            created_at=self.created_ns,
            started_at=self.started_ns,
            finished_at=self.finished_ns,
            exit_code=self.exit_code,
            reason=reason,
            image=self.config.image,
            image_ref=self.config.image.image,
            **_described(self.config),
        )

    def info(self) -> str:
        """Return the verbose part of the status where containerd has it: pid, and devices and envs in the config."""
        pid = 0 if self.child is None else self.child.pid
        return json.dumps({"sandboxID": self.sandbox.id, "pid": pid, "config": _document(self.config)})


def has_labels(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())


def same_pod(sandboxes: Iterable[Sandbox], metadata: Any) -> Sandbox | None:
    """Return the sandbox that has the same pod and attempt: containerd reserves that name."""
    return next((sandbox for sandbox in sandboxes if sandbox.config.metadata == metadata), None)


def _described(config: Any) -> dict[str, Any]:
    return {"metadata": config.metadata, "labels": config.labels, "annotations": config.annotations}


def _document(message: Any) -> dict[str, Any]:
    return MessageToDict(message, preserving_proto_field_name=True)
