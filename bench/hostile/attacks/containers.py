"""What a pod's container with NET_ADMIN can leave on its VF, again and again, as the kubelet restarts the pod.

After each of its lives the VF has to be in the host again, within a minute: the attack fails otherwise. What is
undone by binding a driver again (links that are swapped, a VF moved on) needs a NIC: `tests/lab/test_hostile_pod.py`.
"""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from bench.cni import pod_path
from bench.hostile.attack import attack
from bench.hostile.node_programs import TENANT
from bench.hostile.stage import Stage

_LASTS_S = 10.0
_POD = Path(pod_path(TENANT)).name
# As many as a link's answer has room for, of 127 characters each. Source: rtnl_alt_ifname in net/core/rtnetlink.c.
_NAMES, _NAME_CHARACTERS = 400, 127
_ADDRESSES = 10_000


@attack("pod-names", "a pod gives its VF 400 altnames, one of them no UTF-8, whenever it starts", "cni", _LASTS_S)
async def altnames(stage: Stage) -> AsyncIterator[None]:
    """What asks for the link by name, or reads its names, meets them."""
    add = b"link property add dev eth0 altname "
    named = (f"{number:04}".ljust(_NAME_CHARACTERS, "x").encode() for number in range(_NAMES))
    text = b"".join(add + each + b"\n" for each in (b"a\xff\xfe", *named))
    async with _lived(stage, lambda: _batch(text, b"altname", _NAMES)):
        yield


@attack("pod-addresses", "a pod gives its VF 10,000 addresses whenever it starts", "cni", _LASTS_S)
async def addresses(stage: Stage) -> AsyncIterator[None]:
    """The kernel removes them one by one when the VF leaves."""
    lines = (f"address add 10.{n >> 16}.{n >> 8 & 255}.{n & 255}/8 dev eth0\n" for n in range(1, _ADDRESSES))
    text = "".join(lines).encode()
    async with _lived(stage, lambda: _batch(text, b"inet ", _ADDRESSES - 1)):
        yield


@asynccontextmanager
async def _lived(stage: Stage, act: Callable[[], object]) -> AsyncIterator[None]:
    """Let the tenant's pod start, act and be deleted, again and again."""
    over = False

    async def live() -> None:
        while not over:
            async with stage.node.held(TENANT):
                await asyncio.to_thread(act)

    life = asyncio.create_task(live())
    try:
        yield
    finally:
        over = True
        await life
        await stage.node.free(TENANT)


def _batch(lines: bytes, word: bytes, count: int) -> None:
    """Carry out commands of ip in the pod's namespace; raise RuntimeError unless its VF has so many of these then."""
    inside = ("ip", "-n", _POD)
    subprocess.run((*inside, "-batch", "-"), input=lines, check=True)
    shown = subprocess.run((*inside, "address", "show", "dev", "eth0"), capture_output=True, check=True).stdout
    if shown.count(word) < count:
        raise RuntimeError(f"{_POD}: eth0 has {shown.count(word)} of {count} {word!r}")
