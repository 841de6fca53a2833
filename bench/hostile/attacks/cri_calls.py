"""What a tenant can have the kubelet ask of a node's CRI shim, for all his pods at once: annotations, mounts, probes.

There may be 110 pods on a node. The admission policies, which keep a tenant from writing an assignment, are not there.
"""

import json
from collections.abc import AsyncIterator, Mapping

from cri_api.v1 import api_pb2 as cri

from bench.hostile.attack import attack
from bench.hostile.calls import uid
from bench.hostile.node_programs import PODS
from bench.hostile.runtime import HANG
from bench.hostile.stage import HOST, Stage
from mooring import names
from mooring.program.large_work import LARGE_BYTES

_LASTS_S = 12.0
# The API server's limit of an object's annotations, and of what the shim decodes on its event loop: both 256 KiB.
_MOST_ANNOTATIONS = 262_144 - 4096
# Values of ConfigMaps, of which one has 1 MiB and a container names as many as it wants.
_VARIABLES = 100_000
# Paths of volumes in a pod of 1.5 MiB, as there is room for.
_MOUNTS = 20_000
# What a kubelet takes of a list. Source: maxMsgSize in the cri-client's remote_runtime.go of Kubernetes.
_MOST_ANSWER = 16 << 20
# What containerd keeps of a command's output. Source: maxStreamSize in its container_execsync.go.
_MOST_OUTPUT = 16 << 20
# The shortest period of a probe, in seconds, and so many containers with one in each pod.
_PERIOD_S, _PROBED = 1.0, 50
_AT_ONCE = LARGE_BYTES


def _sandbox(annotations: Mapping[str, str]) -> bytes:
    return bytes(cri.RunPodSandboxRequest(config=_config(annotations)).SerializeToString())


def _config(annotations: Mapping[str, str]) -> cri.PodSandboxConfig:
    metadata = cri.PodSandboxMetadata(name="p", uid=uid(0), namespace="hostile")
    return cri.PodSandboxConfig(metadata=metadata, annotations=annotations)


def _container(annotations: Mapping[str, str], variables: int = 0, mounts: int = 0) -> bytes:
    container = cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name="c"),
        image=cri.ImageSpec(image="busybox"),
        envs=[cri.KeyValue(key=f"VARIABLE_{number:06}", value="x") for number in range(variables)],
        mounts=[
            cri.Mount(container_path=f"/m/{number:05}", host_path=f"/var/lib/{number}") for number in range(mounts)
        ],
    )
    config = _config(annotations)
    request = cri.CreateContainerRequest(pod_sandbox_id="s", config=container, sandbox_config=config)
    return bytes(request.SerializeToString())


def _repeated_key(characters: int = _MOST_ANNOTATIONS) -> str:
    keys = ",".join(f'"{number:05}":0' for number in range(characters // 10 - 10))
    return f'{{{keys},"00000":0}}'


@attack("shim-duplicate-key", "110 pods whose assignments have a key twice among 25,000 are started", "shim", _LASTS_S)
async def duplicate_key(stage: Stage) -> AsyncIterator[None]:
    """Each is read whole to see that."""
    async with stage.node.called("shim", "RunPodSandbox", _sandbox({names.ASSIGNMENT: _repeated_key()})):
        yield


@attack("shim-lists", "110 pods whose assignments are 80,000 lists are started", "shim", _LASTS_S)
async def lists(stage: Stage) -> AsyncIterator[None]:
    """Valid JSON of as many values as there is room for."""
    text = "[" + ",".join(["[]"] * (_MOST_ANNOTATIONS // 3 - 10)) + "]"
    async with stage.node.called("shim", "RunPodSandbox", _sandbox({names.ASSIGNMENT: text})):
        yield


@attack("shim-nesting", "110 pods whose assignments are 258,000 opening brackets are started", "shim", _LASTS_S)
async def nesting(stage: Stage) -> AsyncIterator[None]:
    """No reader may recurse into it."""
    text = "[" * (_MOST_ANNOTATIONS - 100)
    async with stage.node.called("shim", "RunPodSandbox", _sandbox({names.ASSIGNMENT: text})):
        yield


@attack("shim-annotations", "110 containers of pods with 13,000 annotations are created", "shim", _LASTS_S)
async def annotations(stage: Stage) -> AsyncIterator[None]:
    """None of them is ours."""
    many = {f"example.com/{number}": "x" for number in range(13_000)}
    async with stage.node.called("shim", "CreateContainer", _container(many)):
        yield


@attack("shim-requests", "110 containers of pods that request 25,000 things of a VF are created", "shim", _LASTS_S)
async def requests(stage: Stage) -> AsyncIterator[None]:
    """Each is refused in words, for the last of them."""
    text = f"[{_repeated_key()}]"
    async with stage.node.called("shim", "CreateContainer", _container({names.REQUEST: text})):
        yield


@attack("shim-variables", "110 containers with 100,000 variables are created", "shim", _LASTS_S)
async def variables(stage: Stage) -> AsyncIterator[None]:
    """2 MB each."""
    async with stage.node.called("shim", "CreateContainer", _container({}, _VARIABLES)):
        yield


@attack("shim-mounts", "110 containers with 20,000 mounts are created", "shim", _LASTS_S)
async def mounts(stage: Stage) -> AsyncIterator[None]:
    """0.7 MB each."""
    async with stage.node.called("shim", "CreateContainer", _container({}, mounts=_MOUNTS)):
        yield


@attack("shim-at-once", "110 pods are started whose assignments, of 1,500 keys, the shim just reads at once", "shim")
async def at_once(stage: Stage) -> AsyncIterator[None]:
    """The longest that does not wait for its turn."""
    async with stage.node.called("shim", "RunPodSandbox", _sandbox({names.ASSIGNMENT: _repeated_key(_AT_ONCE - 128)})):
        yield


@attack("shim-records", "110 pods with assignments of 80,000 lists run, and each second make a container", "shim", 20.0)
async def records(stage: Stage) -> AsyncIterator[None]:
    """The tenant removes the annotation from his running pods: what each container is compared with is the record."""
    vf = {"pf": "enp4s0f0", "vf": 0, "pci": "0000:04:00.2", "link": "ethernet", "network": "default"}
    lists: list[object] = [[]] * (_MOST_ANNOTATIONS // 3 - 200)
    assignment = {"v": 1, "uid": uid(0), "node": HOST, "vfs": [vf], "ext": {"x": lists}}
    text = json.dumps(assignment, separators=(",", ":"))
    async with stage.node.called("shim", "RunPodSandbox", _sandbox({names.ASSIGNMENT: text})):
        await stage.node.recorded(PODS)
    # The check for devices, which comes every ten minutes, reads them all.
    stage.node.check_devices()
    async with stage.node.called("shim", "CreateContainer", _container({}), pause_s=_PERIOD_S):
        yield
    stage.node.forget()


@attack("shim-outputs", "110 pods have a probe each second that prints 16 MiB", "shim", 10.0)
async def outputs(stage: Stage) -> AsyncIterator[None]:
    """As much of a command's output as a runtime keeps."""
    answer = cri.ExecSyncResponse(stdout=b"x" * (_MOST_OUTPUT - 64)).SerializeToString()
    with stage.node.answered("ExecSync", bytes(answer)):
        async with stage.node.called("shim", "ExecSync", _exec(), pause_s=_PERIOD_S):
            yield


@attack("shim-probes", "110 pods have 50 containers with a probe each second", "shim", 10.0)
async def probes(stage: Stage) -> AsyncIterator[None]:
    """5,500 calls a second, if the kubelet gets as far."""
    async with stage.node.called("shim", "ExecSync", _exec(), PODS * _PROBED, _PERIOD_S):
        yield


@attack("shim-hung", "110 pods have 50 containers with a probe that never ends", "shim", 10.0)
async def hung(stage: Stage) -> AsyncIterator[None]:
    """5,500 calls that wait for the runtime."""
    with stage.node.answered("ExecSync", HANG):
        async with stage.node.called("shim", "ExecSync", _exec(), PODS * _PROBED):
            yield


@attack("shim-listed", "60 pods have 256 KiB of annotations, which each of the kubelet's lists has", "shim", 10.0)
async def listed(stage: Stage) -> AsyncIterator[None]:
    """A list each second, as long as the kubelet takes it."""
    metadata = cri.PodSandboxMetadata(uid=uid(0))
    pod = cri.PodSandbox(id="s", metadata=metadata, annotations={"x": "x" * _MOST_ANNOTATIONS})
    answer = cri.ListPodSandboxResponse(items=[pod] * (_MOST_ANSWER // (_MOST_ANNOTATIONS + 4096)))
    with stage.node.answered("ListPodSandbox", bytes(answer.SerializeToString())):
        async with stage.node.called("shim", "ListPodSandbox", b"", calls=1, pause_s=_PERIOD_S):
            yield


def _exec() -> bytes:
    return bytes(cri.ExecSyncRequest(container_id="c", cmd=["probe"], timeout=3600).SerializeToString())
