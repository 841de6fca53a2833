"""Make the CRI messages of a pod and its containers. Pure.

`sandbox_config` is made again from the current pod for every call that carries it, although CRI calls it immutable. The
real kubelet does the same: an annotation that was edited meanwhile is in the next CreateContainer.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from cri_api.v1 import api_pb2 as cri

from devcluster.kubelet.plan.pods import ContainerSpec, Env, Pod, SecurityContext
from devcluster.kubelet.plan.view import Mount

POD_UID = "io.kubernetes.pod.uid"
POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
CONTAINER_NAME = "io.kubernetes.container.name"
EMPTY: Mapping[str, str] = MappingProxyType({})
_REFERENCE = re.compile(r"\$\$|\$\(([\w.-]+)\)")
_RUNTIME_DEFAULT = cri.SecurityProfile(profile_type=cri.SecurityProfile.RuntimeDefault)


def sandbox_config(pod: Pod, attempt: int, log_folder: str = "") -> Any:
    """Return the pod's sandbox; a pod on the host's network leaves the host name empty."""
    about = pod.metadata
    metadata = cri.PodSandboxMetadata(name=about.name, uid=about.uid, namespace=about.namespace, attempt=attempt)
    every = (*pod.spec.containers, *pod.spec.init_containers)
    is_privileged = any(one.security_context is not None and one.security_context.privileged for one in every)
    security = cri.LinuxSandboxSecurityContext(namespace_options=_namespaces(pod), privileged=is_privileged)
    return cri.PodSandboxConfig(
        metadata=metadata,
        hostname="" if pod.spec.host_network else about.name,
        labels={**(about.labels or {}), **_identity(pod)},
        annotations=about.annotations,
        log_directory=log_folder,
        linux=cri.LinuxPodSandboxConfig(security_context=security),
    )


def container_config(
    pod: Pod,
    spec: ContainerSpec,
    attempt: int,
    known: Mapping[str, str],
    mounted: Sequence[Mount] = (),
    services: Mapping[str, str] = EMPTY,
) -> Any:
    """Return one container.

    ``known`` are the values of fields that the pod itself does not hold, by field path; ``services`` the variables that
    every container gets.
    """
    variables = {**services, **{variable.name: _value(pod, variable, known) for variable in spec.env}}
    return cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name=spec.name, attempt=attempt),
        image=cri.ImageSpec(image=spec.image, user_specified_image=spec.image),
        command=[_expanded(word, variables) for word in spec.command],
        args=[_expanded(word, variables) for word in spec.args],
        working_dir=spec.working_dir,
        envs=[cri.KeyValue(key=name, value=_expanded(value, variables)) for name, value in variables.items()],
        mounts=[cri.Mount(container_path=one.inside, host_path=one.host, readonly=one.read_only) for one in mounted],
        labels={**_identity(pod), CONTAINER_NAME: spec.name},
        log_path=f"{spec.name}/{attempt}.log",
        annotations={"io.kubernetes.container.restartCount": str(attempt)},
        linux=cri.LinuxContainerConfig(security_context=_security(pod, spec)),
    )


def _identity(pod: Pod) -> dict[str, str]:
    about = pod.metadata
    return {POD_NAME: about.name, POD_NAMESPACE: about.namespace, POD_UID: about.uid}


def _namespaces(pod: Pod) -> Any:
    network, pid = cri.NODE if pod.spec.host_network else cri.POD, cri.NODE if pod.spec.host_pid else cri.CONTAINER
    return cri.NamespaceOption(network=network, pid=pid)


def _security(pod: Pod, spec: ContainerSpec) -> Any:
    """Return a container's security context; user and seccomp profile may come from the pod."""
    own, pods = spec.security_context or SecurityContext(), pod.spec.security_context or SecurityContext()
    asked = own.capabilities
    user, group = _first(own.run_as_user, pods.run_as_user), _first(own.run_as_group, pods.run_as_group)
    profile = own.seccomp_profile or pods.seccomp_profile
    return cri.LinuxContainerSecurityContext(
        namespace_options=_namespaces(pod),
        capabilities=cri.Capability(add_capabilities=asked.add, drop_capabilities=asked.drop) if asked else None,
        privileged=own.privileged,
        run_as_user=None if user is None else cri.Int64Value(value=user),
        run_as_group=None if group is None or user is None else cri.Int64Value(value=group),
        readonly_rootfs=own.read_only_root_filesystem,
        no_new_privs=not own.allow_privilege_escalation,
        seccomp=_RUNTIME_DEFAULT if profile is not None and profile.type == "RuntimeDefault" else None,
    )


def _first(own: int | None, pods: int | None) -> int | None:
    return pods if own is None else own


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    """Expand `$(NAME)` to the variable's value; `$$` stands for `$`, and an unknown name stays as it is."""
    return _REFERENCE.sub(lambda found: "$" if found[0] == "$$" else variables.get(found[1], found[0]), text)


def _value(pod: Pod, variable: Env, known: Mapping[str, str]) -> str:
    """Return a variable's value: given, or read from the pod by the downward API; an unknown one is empty."""
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
