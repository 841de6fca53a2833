"""Make the CRI messages of a pod and its containers. Pure.

`sandbox_config` is made anew from the present pod for every call that carries it, as the real kubelet does, although
CRI calls it immutable: an annotation that was edited meanwhile is in the next CreateContainer.
"""

from collections.abc import Mapping
from typing import Any

from cri_api.v1 import api_pb2 as cri

from devcluster.kubelet.pods import ContainerSpec, Env, Pod

POD_UID = "io.kubernetes.pod.uid"
POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
CONTAINER_NAME = "io.kubernetes.container.name"


def sandbox_config(pod: Pod, attempt: int) -> Any:
    """Return the pod's sandbox; a pod on the host's network leaves the host name empty."""
    about = pod.metadata
    metadata = cri.PodSandboxMetadata(name=about.name, uid=about.uid, namespace=about.namespace, attempt=attempt)
    security = cri.LinuxSandboxSecurityContext(namespace_options=_namespaces(pod))
    return cri.PodSandboxConfig(
        metadata=metadata,
        hostname="" if pod.spec.host_network else about.name,
        labels={**(about.labels or {}), **_identity(pod)},
        annotations=about.annotations,
        linux=cri.LinuxPodSandboxConfig(security_context=security),
    )


def container_config(pod: Pod, spec: ContainerSpec, attempt: int, known: Mapping[str, str]) -> Any:
    """Return one container; ``known`` are the values of fields that the pod itself does not hold, by field path."""
    return cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name=spec.name, attempt=attempt),
        image=cri.ImageSpec(image=spec.image, user_specified_image=spec.image),
        command=spec.command,
        args=spec.args,
        working_dir=spec.working_dir,
        envs=[cri.KeyValue(key=variable.name, value=_value(pod, variable, known)) for variable in spec.env],
        labels={**_identity(pod), CONTAINER_NAME: spec.name},
        annotations={"io.kubernetes.container.restartCount": str(attempt)},
        linux=cri.LinuxContainerConfig(security_context=_security(pod, spec)),
    )


def _identity(pod: Pod) -> dict[str, str]:
    about = pod.metadata
    return {POD_NAME: about.name, POD_NAMESPACE: about.namespace, POD_UID: about.uid}


def _namespaces(pod: Pod) -> Any:
    return cri.NamespaceOption(network=cri.NODE if pod.spec.host_network else cri.POD, pid=cri.CONTAINER)


def _security(pod: Pod, spec: ContainerSpec) -> Any:
    context = spec.security_context
    asked = context.capabilities if context else None
    capabilities = cri.Capability(add_capabilities=asked.add, drop_capabilities=asked.drop) if asked else None
    return cri.LinuxContainerSecurityContext(
        namespace_options=_namespaces(pod),
        capabilities=capabilities,
        privileged=context.privileged if context else False,
    )


def _value(pod: Pod, variable: Env, known: Mapping[str, str]) -> str:
    """Return a variable's value: given, or read from the pod by the downward API; what is not known is empty."""
    source = variable.value_from
    if source is None or source.field_ref is None:
        return variable.value
    path = source.field_ref.field_path
    for prefix, entries in (("annotations", pod.metadata.annotations), ("labels", pod.metadata.labels)):
        if path.startswith(f"metadata.{prefix}['"):
            return (entries or {}).get(path.removeprefix(f"metadata.{prefix}['").removesuffix("']"), "")
    about = pod.metadata
    fields = {"metadata.name": about.name, "metadata.namespace": about.namespace, "metadata.uid": about.uid}
    return {**known, **fields}.get(path, "")
