"""The schedulers of `bench.scheduler_e2e`: ours, and kube-scheduler with four ways to request the same 2 VFs.

    plain     the pods less their VFs: neither counted nor chosen
    counted   2 of an extended resource, as a device plugin for SR-IOV offers them: counted, the kubelet chooses later
    claimed   a ResourceClaim for 2 devices (dynamic resource allocation): chosen, and written into the claim's status
    rated     such a claim that reserves each VF's rate of its PF too: what our scheduler does

cpu, tolerations and node affinity stay as they are. kube-scheduler has its defaults but for its client's limits; claims
need 1.34, and rates one with DRAConsumableCapacity on, as 1.36 has it by default.
"""

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.loads import scheduler_load as load
from bench.served import device_claims
from bench.served.served_cluster import COUNTED, PODS, items
from mooring import names
from mooring.annotations.assignment import read_assignment
from mooring.kube.client import Client

SILENT, SPEAKING = "without events", "with events"
KUBE_SCHEDULERS = tuple(f"kube-scheduler, {way}" for way in ("plain", "counted", "claimed", "rated"))


@asynccontextmanager
async def _bare(_client: Client, _nodes: int, _pods: int) -> AsyncIterator[None]:
    yield


@dataclass(frozen=True, slots=True)
class MeasuredScheduler:
    """A scheduler: its command and its pods by number.

    ``named`` lists the VFs of bound pods, ``<node>/<VF>``; None if pods get none by name. ``stage`` adds what the
    cluster needs beside so many nodes and pods. ``share`` is of the usual number of pods, below 1 for the slow.
    """

    name: str
    command: Sequence[str]
    pod: Callable[[int], load.Json]
    named: Callable[[Client], Awaitable[list[str]]] | None = None
    stage: Callable[[Client, int, int], AbstractAsyncContextManager[None]] = _bare
    share: float = 1.0

    @property
    def slug(self) -> str:
        return self.name.replace(", ", "-").replace(" ", "-")


def ours(kubeconfig: Path) -> list[MeasuredScheduler]:
    flags = ("--kubeconfig", str(kubeconfig), "--leader-elect", "false", "--metrics-addr", "")
    programs = ((SILENT, "bench.served.silent_scheduler"), (SPEAKING, "scheduler"))
    return [
        MeasuredScheduler(name, [sys.executable, "-m", module, *flags], load.mixed_pod, _assigned)
        for name, module in programs
    ]


def kube_schedulers(binary: Path, kubeconfig: Path, folder: Path) -> list[MeasuredScheduler]:
    """Return kube-scheduler with each of its kinds of pods; its configuration goes below ``folder``."""
    config = folder / "kube-scheduler.yaml"
    config.write_text(kube_configuration(kubeconfig))
    command = [str(binary), "--config", str(config), "--secure-port", "0"]
    plain, counted, claimed, rated = KUBE_SCHEDULERS
    return [
        MeasuredScheduler(plain, command, _plain),
        MeasuredScheduler(counted, command, _counting),
        MeasuredScheduler(
            claimed, command, _claiming, device_claims.allocated, device_claims.VFS.published, share=1 / 3
        ),
        MeasuredScheduler(
            rated, command, _claiming, device_claims.allocated, device_claims.VFS_WITH_RATES.published, share=1 / 6
        ),
    ]


def kube_configuration(kubeconfig: Path) -> str:
    """Return kube-scheduler's configuration, as JSON: without leader election and its client's limits."""
    connection = {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 5000}
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return json.dumps(document | {"clientConnection": connection, "leaderElection": {"leaderElect": False}})


def _plain(number: int) -> load.Json:
    pod = load.mixed_pod(number)
    spec = {**pod["spec"], "schedulerName": "default-scheduler"}
    return {**pod, "metadata": {**pod["metadata"], "annotations": {}}, "spec": spec}


def _counting(number: int) -> load.Json:
    pod = _plain(number)
    container = pod["spec"]["containers"][0]
    count = {COUNTED: str(load.VFS_A_POD)}
    resources = {"requests": {**container["resources"]["requests"], **count}, "limits": count}
    return {**pod, "spec": {**pod["spec"], "containers": [{**container, "resources": resources}]}}


def _claiming(number: int) -> load.Json:
    return device_claims.claiming(_plain(number))


async def _assigned(client: Client) -> list[str]:
    texts = (pod["metadata"]["annotations"].get(names.ASSIGNMENT) for pod in await items(client, PODS))
    assignments = [read_assignment(text) for text in texts if text]
    return [f"{one.node}/{vf.pf}-vf{vf.vf}" for one in assignments for vf in one.vfs]
