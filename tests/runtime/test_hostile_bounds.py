"""The attacks that are to stay within the bounds do: what is refused shows nothing but that it is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest

from bench.hostile.attack import ATTACKS
from bench.hostile.attacks import at_bounds
from bench.hostile.stage import PODS, Stage
from mooring import names
from mooring.annotations.inventory import read_inventory
from mooring.gpu.inventory import read_gpu_inventory
from mooring.kube.watch import Decoder
from scheduler.kube.objects import Pod
from scheduler.kube.pod_info import PodInfo, read_pod_info
from scheduler.server.startup import installed_kinds

# Those of an API server's plugin DefaultTolerationSeconds.
_ADDED = [{"key": f"node.kubernetes.io/{why}", "operator": "Exists"} for why in ("not-ready", "unreachable")]
AT_BOUNDS = [attack for attack in ATTACKS.values() if attack.run.__module__ == at_bounds.__name__]


class _Recorder:
    """A stage on which nothing happens: it only has what an attacker has written."""

    nodes = 10

    def __init__(self) -> None:
        self.created: list[tuple[str, Any]] = []
        self.annotations: list[dict[str, str]] = []

    async def create(self, path: str, document: Any) -> None:
        self.created.append((path, document))
        self._note(document)

    async def patch(self, _: str, document: Any) -> None:
        self._note(document)

    def _note(self, document: Any) -> None:
        self.annotations.append(document.get("metadata", {}).get("annotations", {}))

    async def delete(self, *_: str) -> None:
        """Nothing is there."""

    @asynccontextmanager
    async def pods(self, *documents: Any) -> AsyncIterator[None]:
        for document in documents:
            await self.create(PODS, document)
        yield


@pytest.mark.parametrize("name", [attack.name for attack in AT_BOUNDS])
async def test_what_is_to_be_within_the_bounds_is_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pod with the tolerations that an API server adds, each version of each inventory."""

    async def at_once(_: float) -> None:
        """Wait for nothing."""

    monkeypatch.setattr(asyncio, "sleep", at_once)
    stage = _Recorder()
    async with ATTACKS[name].run(cast("Stage", stage)):
        pods = [document for path, document in stage.created if path == PODS]
    decode, kinds = Decoder(Pod), installed_kinds()
    for pod in pods:
        spec = pod["spec"] | {"tolerations": [*pod["spec"].get("tolerations", []), *_ADDED]}
        metadata = pod["metadata"] | {"namespace": "default", "uid": "u", "resourceVersion": "1"}
        found = read_pod_info(decode(msgspec.json.encode(pod | {"metadata": metadata, "spec": spec})), kinds)
        assert isinstance(found, PodInfo), found
    inventories = [text for one in stage.annotations if (text := one.get(names.INVENTORY))]
    gpus = [text for one in stage.annotations if (text := one.get(f"{names.INVENTORY_OF}gpu"))]
    for text in inventories:
        assert read_inventory(text).pfs
    for text in gpus:
        assert read_gpu_inventory(text).gpus
    assert pods or inventories
