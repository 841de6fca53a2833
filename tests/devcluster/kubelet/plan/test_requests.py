"""The CRI messages that the kubelet stand-in makes of a pod."""

from collections.abc import Callable

import msgspec
from cri_api.v1 import api_pb2 as cri

from devcluster.kubelet.plan.pods import Pod
from devcluster.kubelet.plan.requests import container_config, sandbox_config

MakePod = Callable[..., Pod]


def test_the_sandbox_carries_the_pods_present_annotations_and_identity(make_pod: MakePod) -> None:
    """Annotations as they are now, and the labels by which the kubelet finds its sandboxes again."""
    config = sandbox_config(make_pod({"annotations": {"a": "edited"}, "labels": {"app": "x"}}), 3)
    assert dict(config.annotations) == {"a": "edited"}
    assert dict(config.labels) == {
        "app": "x",
        "io.kubernetes.pod.name": "p1",
        "io.kubernetes.pod.namespace": "default",
        "io.kubernetes.pod.uid": "u1",
    }
    assert (config.metadata.uid, config.metadata.attempt, config.hostname) == ("u1", 3, "p1")


def test_a_pod_on_the_hosts_network_leaves_the_host_name_empty(make_pod: MakePod) -> None:
    """The runtime refuses one there; the network namespace is the node's."""
    config = sandbox_config(make_pod(hostNetwork=True), 0)
    assert config.hostname == ""
    assert config.linux.security_context.namespace_options.network == cri.NODE


def test_variables_are_given_or_read_from_the_pod(make_pod: MakePod) -> None:
    """Fields of the pod, fields that only the kubelet knows, and an unknown one, which is empty."""
    paths = {"NAME": "metadata.name", "IP": "status.podIP", "A": "metadata.annotations['about']", "NONE": "spec.x"}
    variables = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in paths.items()]
    pod = make_pod(containers=[{"name": "main", "env": [*variables, {"name": "LITERAL", "value": "v"}]}])
    config = container_config(pod, pod.spec.containers[0], 0, {"status.podIP": "10.0.0.2"})
    expected = {"NAME": "p1", "IP": "10.0.0.2", "A": "p1", "NONE": "", "LITERAL": "v"}
    assert {variable.key: variable.value for variable in config.envs} == expected


def test_capabilities_and_the_pid_namespace_are_the_containers_own(make_pod: MakePod) -> None:
    """RDMA pods request IPC_LOCK; a container does not share the sandbox's processes."""
    context = {"capabilities": {"add": ["IPC_LOCK"]}}
    pod = make_pod(containers=[{"name": "main", "securityContext": context}])
    security = container_config(pod, pod.spec.containers[0], 0, {}).linux.security_context
    assert list(security.capabilities.add_capabilities) == ["IPC_LOCK"]
    assert security.namespace_options.pid == cri.CONTAINER


def test_a_pod_with_fields_unknown_to_the_stand_in_is_read(make_pod: MakePod) -> None:
    """A newer API server's pod has more fields than these."""
    assert msgspec.structs.asdict(make_pod(future={"x": 1}).spec)["restart_policy"] == "Always"
