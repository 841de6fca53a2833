"""What a tenant can have the runtime ask of a node's CNI server, for all his pods at once: networks, annotations.

Under Multus a NetworkAttachmentDefinition is the tenant's, and has 1.5 MiB. There may be 110 pods on a node.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

from bench.hostile.attack import attack
from bench.hostile.stage import Stage
from mooring import names

_LASTS_S = 12.0
# Just below what etcd takes of one object.
_MOST = 1_500_000
_MOST_ANNOTATIONS = 262_144 - 4096


def _conf(**fields: Any) -> bytes:
    conf = {"cniVersion": "1.0.0", "name": "hostile", "type": "mooring-cni", **fields}
    return json.dumps(conf, separators=(",", ":")).encode()


@attack(
    "cni-networks", "110 pods have a network of 1.5 MB, with 23,000 networks that have an IPAM each", "cni", _LASTS_S
)
async def networks(stage: Stage) -> AsyncIterator[None]:
    """Each is read, and checked."""
    listed = {f"n{number:05}": {"ipam": {"type": "static", "n": f"{number:05}"}} for number in range(_MOST // 50)}
    async with stage.node.called("cni", "ADD", _conf(networks=listed)):
        yield


@attack("cni-routes", "110 pods have a network of 1.5 MB, with 60,000 routes", "cni", _LASTS_S)
async def routes(stage: Stage) -> AsyncIterator[None]:
    """Each is an address to be read."""
    listed = [{"dst": f"10.{number >> 8 & 255}.{number & 255}.0/24"} for number in range(_MOST // 25)]
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
