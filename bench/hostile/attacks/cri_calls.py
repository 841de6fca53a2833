"""What a tenant can have the kubelet ask of a node's CRI shim, for all his pods at once: annotations, variables.

There may be 110 pods on a node. The admission policies, which keep a tenant from writing an assignment, are not there.
"""

from collections.abc import AsyncIterator, Mapping

from cri_api.v1 import api_pb2 as cri

from bench.hostile.attack import attack
from bench.hostile.stage import Stage
from mooring import names

_LASTS_S = 12.0
# The API server's limit of an object's annotations, and of what the shim decodes on its event loop: both 256 KiB.
_MOST_ANNOTATIONS = 262_144 - 4096
# Values of ConfigMaps, of which one has 1 MiB and a container names as many as it wants.
_VARIABLES = 100_000


def _sandbox(annotations: Mapping[str, str]) -> bytes:
    return bytes(cri.RunPodSandboxRequest(config=_config(annotations)).SerializeToString())


def _config(annotations: Mapping[str, str]) -> cri.PodSandboxConfig:
    metadata = cri.PodSandboxMetadata(name="p", uid="u", namespace="hostile")
    return cri.PodSandboxConfig(metadata=metadata, annotations=annotations)


def _container(annotations: Mapping[str, str], variables: int = 0) -> bytes:
    container = cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name="c"),
        image=cri.ImageSpec(image="busybox"),
        envs=[cri.KeyValue(key=f"VARIABLE_{number:06}", value="x") for number in range(variables)],
    )
    config = _config(annotations)
    request = cri.CreateContainerRequest(pod_sandbox_id="s", config=container, sandbox_config=config)
    return bytes(request.SerializeToString())


def _repeated_key() -> str:
    keys = ",".join(f'"{number:05}":0' for number in range(_MOST_ANNOTATIONS // 10 - 10))
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
