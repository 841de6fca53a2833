"""What a tenant can have the runtime ask of a node's CNI server, for all his pods at once: networks, annotations.

Under Multus a NetworkAttachmentDefinition is the tenant's, and has 1.5 MiB. There may be 110 pods on a node.
"""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from bench.cni import NODE
from bench.hostile.attack import attack
from bench.hostile.calls import uid
from bench.hostile.node_programs import PODS, TENANT
from bench.hostile.stage import Stage
from mooring import names
from mooring.program.large_work import LARGE_BYTES

_LASTS_S = 12.0
# Just below what etcd takes of one object.
_MOST = 1_500_000
# What is read of a configuration.
_MOST_NETWORKS, _MOST_ROUTES = 1024, 4096
_MOST_ANNOTATIONS = 262_144 - 4096


def _conf(**fields: Any) -> bytes:
    conf = {"cniVersion": "1.0.0", "name": "hostile", "type": "mooring-cni", **fields}
    return json.dumps(conf, separators=(",", ":")).encode()


@attack("cni-networks", "110 pods have a network of 1.5 MB, 1,024 networks with an IPAM each", "cni", _LASTS_S)
async def networks(stage: Stage) -> AsyncIterator[None]:
    """Each is read, and checked."""
    listed = {
        f"n{number:05}": {"ipam": {"type": "static", "n": "x" * (_MOST // _MOST_NETWORKS - 60)}}
        for number in range(_MOST_NETWORKS)
    }
    async with stage.node.called("cni", "ADD", _conf(networks=listed)):
        yield


@attack("cni-routes", "110 pods have networks with 4,096 routes", "cni", _LASTS_S)
async def routes(stage: Stage) -> AsyncIterator[None]:
    """Each is an address to be read."""
    listed = [{"dst": f"10.{number >> 8 & 255}.{number & 255}.0/24"} for number in range(_MOST_ROUTES)]
    async with stage.node.called("cni", "ADD", _conf(networks={"n": {"routes": listed}})):
        yield


@attack("cni-lists", "110 pods have a network of 1.5 MB, with 500,000 empty lists", "cni", _LASTS_S)
async def lists(stage: Stage) -> AsyncIterator[None]:
    """Valid JSON of as many values as there is room for."""
    async with stage.node.called("cni", "ADD", _conf(args={"x": [[]] * (_MOST // 3 - 100)})):
        yield


@attack("cni-nesting", "110 pods have a network of 1.5 MB of opening brackets", "cni", _LASTS_S)
async def nesting(stage: Stage) -> AsyncIterator[None]:
    """No reader may recurse into it."""
    async with stage.node.called("cni", "ADD", b"[" * _MOST):
        yield


@attack("cni-annotations", "110 pods have 256 KiB of annotations, with a request of 25,000 keys", "cni", _LASTS_S)
async def annotations(stage: Stage) -> AsyncIterator[None]:
    """The runtime passes them on."""
    keys = ",".join(f'"{number:05}":0' for number in range(_MOST_ANNOTATIONS // 10 - 10))
    given = {"io.kubernetes.cri.pod-annotations": {names.REQUEST: f"[{{{keys}}}]"}}
    async with stage.node.called("cni", "ADD", _conf(runtimeConfig=given)):
        yield


@attack("cni-previous", "110 pods have a network of 1.5 MB, with a result of 60,000 routes before it", "cni", _LASTS_S)
async def previous(stage: Stage) -> AsyncIterator[None]:
    """It is the answer, too."""
    async with stage.node.called("cni", "ADD", _with_result(_MOST // 25)):
        yield


@attack("cni-at-once", "110 pods have a network that is just read at once, with a result of 600 routes", "cni")
async def at_once(stage: Stage) -> AsyncIterator[None]:
    """The longest that does not wait for its turn."""
    async with stage.node.called("cni", "ADD", _with_result(LARGE_BYTES // 26)):
        yield


def _with_result(routes: int) -> bytes:
    listed = [{"dst": f"10.{number >> 8 & 255}.{number & 255}.0/24"} for number in range(routes)]
    return _conf(prevResult={"cniVersion": "1.0.0", "routes": listed})


@attack("cni-records", "110 pods have assignments of 80,000 lists, and a plain network", "cni", _LASTS_S)
async def records(stage: Stage) -> AsyncIterator[None]:
    """The CRI shim has recorded them; their VF need not exist."""
    lists: list[object] = [[]] * (_MOST_ANNOTATIONS // 3 - 200)
    absent = stage.node.vf(TENANT) | {"pci": "0000:ff:1f.7"}
    with stage.node.host_records([_record(pod, absent, {"x": lists}) for pod in range(PODS)]):
        async with stage.node.called("cni", "ADD", _conf(), pause_s=1.0):
            yield


@attack("cni-waiting", "110 pods wait for the VF that a tenant's earlier pod does not give back", "cni", 20.0)
async def waiting(stage: Stage) -> AsyncIterator[None]:
    """Their network has them wait for as long as there may be."""
    with stage.node.host_records([_record(pod, stage.node.vf(TENANT), {}) for pod in range(PODS)]):
        async with stage.node.held(TENANT), stage.node.called("cni", "ADD", _conf(holdTimeoutSeconds=60), pause_s=1.0):
            yield


def _record(pod: int, vf: Mapping[str, object], ext: Mapping[str, object]) -> tuple[str, str]:
    """Return the uid of one of the tenant's pods, and the CRI shim's record of it."""
    assignment = {"v": 1, "uid": uid(pod), "node": NODE, "vfs": [vf], **({"ext": ext} if ext else {})}
    return uid(pod), json.dumps({"v": 1, "pod": f"hostile/p{pod}", "assignment": assignment}, separators=(",", ":"))
