"""Volumes, probes, logs and a container's environment, on the kubelet stand-in's own node."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from devcluster.apiserver.serve import ApiServer, Options
from devcluster.kubelet.logs import _text
from devcluster.kubelet.plan.pods import Pod
from devcluster.kubelet.plan.requests import container_config
from devcluster.kubelet.volumes import VolumeError, Volumes, mounts
from mooring.kube.access import load_access
from mooring.kube.client import Client

_NAMESPACE = "/api/v1/namespaces/default"


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """Connect to an API server as its administrator, with the pod's account and a config map."""
    async with ApiServer(Options(rbac=True)) as server:
        (tmp_path / "kubeconfig").write_text(server.kubeconfig_text())
        async with Client(load_access(str(tmp_path / "kubeconfig"))) as found:
            for plural, body in {
                "serviceaccounts": {"metadata": {"name": "default"}},
                "configmaps": {"metadata": {"name": "c"}, "data": {"a": "A", "b": "B"}},
                "pods": {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            }.items():
                await found.request("POST", f"{_NAMESPACE}/{plural}", msgspec.json.encode(body))
            yield found


def _pod(uid: str, *volumes: object, **container: object) -> Pod:
    document = {
        "metadata": {"name": "p", "namespace": "default", "uid": uid},
        "spec": {"volumes": volumes, "containers": [{"name": "c", "image": "i", **container}]},
    }
    return msgspec.convert(document, Pod)


async def _uid(client: Client) -> str:
    return str(msgspec.json.decode(await client.request("GET", f"{_NAMESPACE}/pods/p"))["metadata"]["uid"])


async def test_volumes_are_made_and_go_with_the_pod(client: Client, tmp_path: Path) -> None:
    """A config map's keys are files, one that may be missing an empty folder; host paths are where they are."""
    uid = await _uid(client)
    pod = _pod(
        uid,
        {"name": "all", "configMap": {"name": "c"}},
        {"name": "one", "configMap": {"name": "c", "items": [{"key": "a", "path": "deep/x"}]}},
        {"name": "none", "configMap": {"name": "missing", "optional": True}},
        {"name": "host", "hostPath": {"path": str(tmp_path / "made"), "type": "DirectoryOrCreate"}},
        volumeMounts=[{"name": "host", "mountPath": "/in", "readOnly": True}],
    )
    volumes = Volumes(client, tmp_path / "pods", time.time)
    made = await volumes.make(pod)
    assert {path.name: path.read_text() for path in made["all"].iterdir()} == {"a": "A", "b": "B"}
    assert (made["one"] / "deep/x").read_text() == "A"
    assert list(made["none"].iterdir()) == []
    (mount,) = mounts(pod.spec.containers[0], made)
    assert (mount.inside, mount.host, mount.read_only) == ("/in", str(tmp_path / "made"), True)
    volumes.remove(uid)
    assert list((tmp_path / "pods").iterdir()) == []
    assert (tmp_path / "made").is_dir()


async def test_a_token_is_bound_to_the_pod_and_renewed_when_half_its_time_is_over(
    client: Client, tmp_path: Path
) -> None:
    """It is requested once, then kept; a pod that is gone gets none."""
    now = time.time()
    source = {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}
    pod = _pod(await _uid(client), {"name": "t", "projected": {"sources": [source]}})
    token = (await Volumes(client, tmp_path, lambda: now).make(pod))["t"] / "token"
    first = token.read_text()
    await Volumes(client, tmp_path, lambda: now + 200).make(pod)
    assert token.read_text() == first
    await Volumes(client, tmp_path, lambda: now + 400).make(pod)
    assert token.read_text() != first


async def test_a_config_map_that_must_be_there_is_waited_for_by_name(client: Client, tmp_path: Path) -> None:
    """The event FailedMount has the config map's name."""
    pod = _pod("u", {"name": "v", "configMap": {"name": "missing"}})
    with pytest.raises(VolumeError, match='configmap "missing" not found'):
        await Volumes(client, tmp_path, time.time).make(pod)


def test_arguments_and_variables_are_expanded() -> None:
    """$(NAME) by the container's own variables and the services', $$ escapes, an unknown name stays."""
    pod = _pod("u", args=["--a=$(NODE)", "$(NONE)", "$$(NODE)", "$(HOST)"], env=[{"name": "NODE", "value": "n1"}])
    config = container_config(pod, pod.spec.containers[0], 0, {}, services={"HOST": "10.0.0.1"})
    assert list(config.args) == ["--a=n1", "$(NONE)", "$(NODE)", "10.0.0.1"]


def test_a_container_has_the_rights_that_it_or_its_pod_says() -> None:
    """The container's own field comes before the pod's."""
    document = {
        "metadata": {"name": "p", "namespace": "d", "uid": "u"},
        "spec": {
            "securityContext": {"runAsUser": 7, "runAsGroup": 8, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "c", "securityContext": {"runAsUser": 9, "readOnlyRootFilesystem": True}}],
        },
    }
    pod = msgspec.convert(document, Pod)
    rights = container_config(pod, pod.spec.containers[0], 0, {}).linux.security_context
    assert (rights.run_as_user.value, rights.run_as_group.value, rights.readonly_rootfs) == (9, 8, True)
    assert rights.seccomp.profile_type == rights.seccomp.RuntimeDefault


def test_a_log_is_what_the_container_wrote() -> None:
    """Parts of a line are put together, streams and times left out."""
    assert _text([b"t stdout P ab", b"t stdout F c", b"t stderr F d e"]) == b"abc\nd e\n"
