"""GPUs by CDI on the real containerd and runc: a container opens its own GPU and no other; 1.6 is refused."""

import json
import os
import signal
import stat
from collections.abc import Mapping
from typing import Any

import grpc
import pytest
from cri_api.v1 import api_pb2 as cri

from mooring.records.without_devices import NAME, read_without_devices
from tests.support.polling import wait_until

pytestmark = pytest.mark.containerd

GPUS = ("0000:1b:00.0", "0000:43:00.0")
UUIDS = tuple(f"GPU-{minor}1111111-0000-4000-8000-000000000001" for minor in range(len(GPUS)))
_MAJOR = 195
_FIRST_MINOR = 40


@pytest.fixture(scope="module", autouse=True)
def gpus(node: Any) -> None:
    """Two GPUs of NVIDIA's as their driver and nvidia-ctk describe them; no driver is behind their device nodes."""
    devices = []
    for minor, (pci, uuid) in enumerate(zip(GPUS, UUIDS, strict=True)):
        function = node.layout.sys / "bus/pci/devices" / pci
        function.mkdir(parents=True)
        (function / "vendor").write_text("0x10de\n")
        told = node.proc / "driver/nvidia/gpus" / pci / "information"
        told.parent.mkdir(parents=True)
        told.write_text(f"Model: \t\t NVIDIA H100\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")
        host = node.layout.dev / f"nvidia{minor}"
        os.mknod(host, stat.S_IFCHR | 0o666, os.makedev(_MAJOR, _FIRST_MINOR + minor))
        numbers = {"type": "c", "major": _MAJOR, "minor": _FIRST_MINOR + minor}
        edits = {"deviceNodes": [{"path": f"/dev/nvidia{minor}", "hostPath": str(host), **numbers}]}
        devices.append({"name": str(minor), "containerEdits": edits})
    document = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}
    node.containerd.place.cdi.mkdir(parents=True, exist_ok=True)
    (node.containerd.place.cdi / "nvidia.json").write_text(json.dumps(document))


_WITHOUT = "does not support CDI devices: containerd supports them from 1.7"


def _takes_cdi(client: Any) -> bool:
    return not client.stub.Version(cri.VersionRequest()).runtime_version.startswith("1.6.")


def _with_gpus(pod: Any, containers: Mapping[str, list[str]]) -> Any:
    units = [pci for pci in GPUS if any(pci in given for given in containers.values())]
    uuids = [UUIDS[GPUS.index(pci)] for pci in units]
    assignment = {
        **json.loads(pod.annotations["mooring.dev/assignment"]),
        "ext": {"gpu": {"units": units, "uuids": uuids, "containers": containers}},
    }
    pod.annotations["mooring.dev/assignment"] = json.dumps(assignment)
    return pod


def test_a_container_opens_the_gpus_that_it_was_given(node: Any, client: Any) -> None:
    """Beside its VF; a container that was given none has neither. A runtime that ignores CDI is refused in words."""
    pod = _with_gpus(node.pod(node.functions[0]), {"trainer": [GPUS[1]]})
    sandbox = client.run(pod)
    if not _takes_cdi(client):
        assert _WITHOUT in _refusal(client, pod, sandbox, "trainer")
        client.remove(sandbox)
        return
    trainer, sidecar = (client.started(pod, sandbox, name) for name in ("trainer", "sidecar"))
    assert client.opens(trainer, "/dev/nvidia1")
    assert client.opens(trainer, f"/dev/infiniband/{pod.vfs[0].uverbs}")
    assert client.shell(trainer, "ls /dev | grep nvidia").split() == ["nvidia1"]
    assert client.shell(sidecar, "ls /dev | grep nvidia") == ""
    assert client.shell(trainer, f"mknod /tmp/stolen c {_MAJOR} {_FIRST_MINOR}") == ""
    assert not client.opens(trainer, "/tmp/stolen")
    for container in (trainer, sidecar):
        assert client.shell(container, "echo $NVIDIA_VISIBLE_DEVICES").strip() == "void"
    (told,) = json.loads(client.shell(trainer, "echo $MOORING_GPUS"))
    assert (told["pci"], told["uuid"]) == (GPUS[1], UUIDS[1])
    client.remove(sandbox)


def test_a_gpu_that_another_pod_still_has_is_not_given_twice(node: Any, client: Any) -> None:
    """The runtime is asked at that moment; when the pod is gone the GPU is free."""
    first, second = (_with_gpus(node.pod(vf), {"main": [GPUS[0]]}) for vf in node.functions[:2])
    takes_cdi = _takes_cdi(client)
    sandbox = client.run(first)
    if takes_cdi:
        client.started(first, sandbox)
    other = client.run(second)
    if takes_cdi:
        assert f"GPU {GPUS[0]} is held by pod {first.uid!r}" in _refusal(client, second, other)
        client.remove(sandbox)
        assert client.opens(client.started(second, other), "/dev/nvidia0")
    else:
        assert _WITHOUT in _refusal(client, second, other)
        client.remove(sandbox)
    client.remove(other)


def test_a_container_without_its_gpu_is_found(node: Any, client: Any) -> None:
    """Made past the shim; by the device numbers that the runtime tells of it, those that came by CDI among them."""
    pod = _with_gpus(node.pod(node.functions[0], containers=["nobody"]), {"bare": [GPUS[0]], "kept": [GPUS[1]]})
    sandbox = client.run(pod)
    if _takes_cdi(client):
        client.started(pod, sandbox, "kept")
    with node.client(node.containerd.place.socket) as direct:
        bare = direct.started(pod, sandbox, "bare")
    os.kill(node.processes.pid("shim"), signal.SIGHUP)
    report = node.layout.run / NAME
    wait_until(lambda: report.exists() and "bare" in report.read_text())
    (found,) = read_without_devices(report.read_text())
    assert (found.id, found.vfs, found.gpus) == (bare, (), (GPUS[0],))
    client.remove(sandbox)


def _refusal(client: Any, pod: Any, sandbox: str, container: str = "main") -> str:
    with pytest.raises(grpc.RpcError) as error:
        client.create(pod, sandbox, container)
    return str(error.value.details())
