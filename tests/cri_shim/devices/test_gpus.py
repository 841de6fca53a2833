"""Containers get the GPUs of their pods by CDI names, or are refused with the reason; other pods stay as they are."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from cri_api.v1 import api_pb2 as cri

from cri_shim.devices.device_nodes import Roots
from cri_shim.devices.gpus import GpuFolders
from cri_shim.interceptors import Interceptors
from cri_shim.plan.inject import Rules
from cri_shim.proxy.proxy import RefusedError
from cri_shim.records import Records
from cri_shim.runtime import Runtime
from mooring.annotations.assignment import read_assignment
from mooring.records.pod_record import PodRecord
from tests.cri_shim import conftest

ONE, TWO, AMD = "0000:1b:00.0", "0000:43:00.0", "0000:83:00.0"
UUIDS = {ONE: "GPU-11111111-0000-4000-8000-000000000001", TWO: "GPU-22222222-0000-4000-8000-000000000002"}
AMD_UUID = "GPU-b00000000000000a"
OTHER = "8c2f0001-0000-4000-8000-00000000000f"
GPUS = {
    "units": [ONE, TWO],
    "uuids": [UUIDS[ONE], UUIDS[TWO]],
    "containers": {"trainer": [ONE, TWO], "eval": [TWO]},
    "beside": {ONE: 0},
}
ASSIGNMENT = {"v": 1, "uid": conftest.UID, "node": conftest.NODE, "vfs": [], "ext": {"gpu": GPUS}}


class GpuRuntime(conftest.Runtime):
    """A runtime of a given name that does CDI or not, with sandboxes (uid, ready) and running containers of uids."""

    def __init__(self) -> None:
        super().__init__()
        self.version = ("containerd", "1.7.24")
        self.config: object = {"enableCDI": True}
        self.sandboxes: list[tuple[str, bool]] = []
        self.containers: list[str] = []
        self.broken = False

    async def _once(self, name: str, raw: bytes, context: Any) -> bytes:
        if self.broken:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "containerd is not there")
        if name == "Version":
            found: Any = cri.VersionResponse(runtime_name=self.version[0], runtime_version=self.version[1])
        elif name == "Status":
            found = cri.StatusResponse(info={"config": json.dumps(self.config)} if self.config else {})
        elif name == "ListPodSandbox":
            states = {True: cri.SANDBOX_READY, False: cri.SANDBOX_NOTREADY}
            metadata = [(cri.PodSandboxMetadata(uid=uid), states[ready]) for uid, ready in self.sandboxes]
            items = [cri.PodSandbox(id=f"s-{one.uid}", metadata=one, state=state) for one, state in metadata]
            found = cri.ListPodSandboxResponse(items=items)
        else:
            running = [cri.Container(id=f"c-{uid}", pod_sandbox_id=f"s-{uid}") for uid in self.containers]
            found = cri.ListContainersResponse(containers=running)
        return bytes(found.SerializeToString())


def write_cdi(host: Path, devices: Mapping[str, Mapping[str, Any]], kind: str = "nvidia.com/gpu") -> None:
    """Write a specification as ``nvidia-ctk cdi generate`` does: edits by device, and those of all."""
    shared = {"deviceNodes": [{"path": "/dev/nvidiactl"}], "hooks": [{"hookName": "createContainer", "path": "/x"}]}
    listed = [{"name": name, "containerEdits": edits} for name, edits in devices.items()]
    document = {"cdiVersion": "0.5.0", "kind": kind, "devices": listed, "containerEdits": shared}
    (host / "cdi").mkdir(exist_ok=True)
    (host / "cdi" / f"{kind.replace('/', '-')}.yaml").write_text(yaml.safe_dump(document))


def edits(*nodes: str, **more: Any) -> dict[str, Any]:
    return {"deviceNodes": [{"path": f"/dev/{node}"} for node in nodes]} | more


BOTH = {"0": edits("nvidia0"), "1": edits("nvidia1"), "all": edits("nvidia0", "nvidia1")}


@pytest.fixture
def gpu_host(host: Path) -> Path:
    """The host of the VFs with two GPUs of NVIDIA's and one of AMD's."""
    for minor, pci in enumerate((ONE, TWO)):
        write_nvidia(host, pci, minor, UUIDS[pci])
    amd = host / f"sys/bus/pci/devices/{AMD}"
    (amd / "drm/renderD128").mkdir(parents=True)
    (amd / "drm/card1").mkdir()
    (amd / "vendor").write_text("0x1002\n")
    (amd / "unique_id").write_text("b00000000000000a\n")
    write_cdi(host, BOTH)
    write_cdi(host, {"0": edits("dri/renderD128", "dri/card1", "kfd")}, "amd.com/gpu")
    return host


def write_nvidia(host: Path, pci: str, minor: int, uuid: str) -> None:
    (host / f"sys/bus/pci/devices/{pci}").mkdir(parents=True, exist_ok=True)
    (host / f"sys/bus/pci/devices/{pci}/vendor").write_text("0x10de\n")
    folder = host / f"proc/driver/nvidia/gpus/{pci}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "information").write_text(f"Model: \t\t NVIDIA H100\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n")


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[GpuRuntime]:
    runtime = GpuRuntime()
    await runtime.start(tmp_path / "runtime.sock")
    yield runtime
    await runtime.stop()


@pytest.fixture
async def interceptors(
    gpu_host: Path, rules: Rules, runtime: GpuRuntime, tmp_path: Path
) -> AsyncIterator[Interceptors]:
    """Interceptors of a shim whose runtime says that the pod's sandbox is ready."""
    cdi = f"{gpu_host / 'cdi'}:/var/run/none"
    runtime.config = {"enableCDI": True, "cdiSpecDirs": [str(gpu_host / "cdi"), "/run/none/"]}
    roots = Roots(gpu_host / "sys", gpu_host / "dev", proc=gpu_host / "proc", cdi=cdi)
    interceptors = Interceptors(rules, Records(gpu_host / "state", gpu_host / "run"), roots)
    runtime.sandboxes = [(conftest.UID, True)]
    async with grpc.aio.insecure_channel(f"unix://{tmp_path}/runtime.sock") as channel:
        interceptors.ask(Runtime(channel))
        yield interceptors


def annotations(**gpus: Any) -> dict[str, str]:
    return {"mooring.dev/assignment": json.dumps(ASSIGNMENT | {"ext": {"gpu": GPUS | gpus}})}


async def created(
    interceptors: Interceptors, make: Any, notes: dict[str, str], container: str = "trainer", **config: Any
) -> Any:
    """Run a pod's sandbox, create a container of it, and return what the runtime sees of its configuration."""
    async with interceptors.run_pod_sandbox(make.run(notes, handler="runc")):
        pass
    async with interceptors.create_container(make.create(notes, container, **config)) as raw:
        return cri.CreateContainerRequest.FromString(raw).config


def given(config: Any) -> tuple[list[str], dict[str, str]]:
    return [one.name for one in config.CDI_devices], {one.key: one.value for one in config.envs}


async def test_each_container_gets_its_gpus_by_the_names_of_this_moment(
    interceptors: Interceptors, gpu_host: Path, make: Any
) -> None:
    """By address, whatever the driver calls them; who has none, and who has some, sees nothing of NVIDIA's runtime."""
    hidden = {"NVIDIA_VISIBLE_DEVICES": "void"}
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    first = {"pci": ONE, "uuid": UUIDS[ONE], "interface": 0}
    second = {"pci": TWO, "uuid": UUIDS[TWO], "interface": None}
    found, variables = given(await created(interceptors, make, annotations()))
    assert found == ["nvidia.com/gpu=0", "nvidia.com/gpu=1"]
    assert json.loads(variables.pop("MOORING_GPUS")) == [first, second]
    assert variables == hidden | order
    assert given(await created(interceptors, make, annotations(), "log")) == ([], hidden)
    # The driver was loaded again, and counts the other way round.
    write_nvidia(gpu_host, ONE, 1, UUIDS[ONE])
    write_nvidia(gpu_host, TWO, 0, UUIDS[TWO])
    found, variables = given(await created(interceptors, make, annotations(), "eval"))
    assert found == ["nvidia.com/gpu=0"]
    assert json.loads(variables["MOORING_GPUS"]) == [second]


async def test_what_the_container_sets_stays_but_for_the_gpus_that_it_takes(
    interceptors: Interceptors, make: Any
) -> None:
    """CUDA's images set the variable to all: the runtime of NVIDIA would give them to it."""
    own = [
        cri.KeyValue(key="NVIDIA_VISIBLE_DEVICES", value="all"),
        cri.KeyValue(key="CUDA_DEVICE_ORDER", value="FASTEST_FIRST"),
        cri.KeyValue(key="MOORING_GPUS", value="mine"),
    ]
    for container in ("trainer", "log"):
        _, variables = given(await created(interceptors, make, annotations(), container, envs=own))
        assert variables == {
            "NVIDIA_VISIBLE_DEVICES": "void",
            "CUDA_DEVICE_ORDER": "FASTEST_FIRST",
            "MOORING_GPUS": "mine",
        }


async def test_gpus_and_vfs_come_together(interceptors: Interceptors, gpu_host: Path, make: Any) -> None:
    """A pod with both gets both, or nothing."""
    make.write_entry(gpu_host / "state", make.first)
    make.write_entry(gpu_host / "state", make.second)
    notes = make.annotations_with(ext={"gpu": GPUS})
    config = await created(interceptors, make, notes)
    assert config.devices[0].container_path == "/dev/infiniband/uverbs3"
    assert len(config.CDI_devices) == 2
    (gpu_host / "cdi/nvidia.com-gpu.yaml").unlink()
    with pytest.raises(RefusedError, match="no CDI device contains exactly this GPU"):
        await created(interceptors, make, notes)


async def test_a_gpu_of_amds_is_one_too(interceptors: Interceptors, make: Any) -> None:
    """Its render node and its unique id name it."""
    gpus = {"units": [AMD], "uuids": [AMD_UUID], "containers": {"trainer": [AMD]}}
    notes = {"mooring.dev/assignment": json.dumps(ASSIGNMENT | {"ext": {"gpu": gpus}})}
    found, _ = given(await created(interceptors, make, notes))
    assert found == ["amd.com/gpu=0"]


@pytest.mark.parametrize(
    ("devices", "expected", "reason"),
    [
        # Index, UUID and `all` on a host with one GPU: the same edits in whatever order.
        ({"0": edits("nvidia0"), UUIDS[ONE]: edits("nvidia0"), "all": edits("nvidia0")}, UUIDS[ONE], ""),
        ({"zero": edits("nvidia0", "dri/x"), "first": edits("dri/x", "nvidia0")}, "first", ""),
        ({"0": edits("nvidia0"), "mig": edits("nvidia0", "nvidia-caps/nvidia-cap21")}, "0", ""),
        (
            {"0": edits("nvidia0"), "other": edits("nvidia0", env=["X=1"])},
            "",
            "0 and nvidia.com/gpu=other define it differ",
        ),
        ({"all": edits("nvidia0", "nvidia1")}, "", "no CDI device contains exactly this GPU"),
        ({"dri": edits("dri/renderD129")}, "", "no CDI device contains exactly this GPU"),
    ],
)
async def test_of_several_names_the_uuids_or_the_first(
    interceptors: Interceptors, gpu_host: Path, make: Any, devices: Any, expected: str, reason: str
) -> None:
    """Of those with the same edits; with different ones nobody can say which is meant."""
    write_cdi(gpu_host, devices)
    notes = annotations(containers={"trainer": [ONE]})
    if reason:
        with pytest.raises(RefusedError, match=reason):
            await created(interceptors, make, notes)
    else:
        assert given(await created(interceptors, make, notes))[0] == [f"nvidia.com/gpu={expected}"]


Change = Callable[[GpuRuntime, Path], object]
REFUSALS: list[tuple[Change, str]] = [
    (lambda runtime, _: setattr(runtime, "config", {"enableCDI": False}), "containerd 1.7.24 has CDI disabled"),
    (lambda runtime, _: setattr(runtime, "config", {"sandboxImage": "x"}), "has CDI disabled: its configuration needs"),
    (lambda runtime, _: setattr(runtime, "config", None), "has CDI disabled"),
    (
        lambda runtime, _: setattr(runtime, "config", {"enableCDI": True, "cdiSpecDirs": ["/etc/cdi"]}),
        "the runtime reads CDI specifications from /etc/cdi, but mooring-cri-shim from /",
    ),
    (lambda runtime, _: setattr(runtime, "version", ("containerd", "1.6.20~ds1")), "containerd supports them from 1.7"),
    (lambda runtime, _: setattr(runtime, "version", ("cri-o", "1.27.9")), "CRI-O supports them from 1.28"),
    (lambda runtime, _: setattr(runtime, "broken", True), "which pods have GPUs: containerd is not there"),
    (lambda _, host: write_nvidia(host, TWO, 1, "GPU-another"), "the host has GPU-another there, not GPU-2222"),
    (
        lambda _, host: (host / f"proc/driver/nvidia/gpus/{ONE}/information").unlink(),
        "its driver does not report its device nodes",
    ),
    (lambda _, host: (host / f"sys/bus/pci/devices/{TWO}/vendor").unlink(), f"GPU {TWO}: the host has no GPU there"),
]


@pytest.mark.parametrize(("change", "reason"), REFUSALS)
async def test_a_container_that_cannot_have_its_gpus_is_refused(
    interceptors: Interceptors, runtime: GpuRuntime, gpu_host: Path, make: Any, change: Change, reason: str
) -> None:
    """With the reason; it never starts without them. A container of the pod that has none starts."""
    change(runtime, gpu_host)
    with pytest.raises(RefusedError, match="mooring: pod ml/web: ") as refused:
        await created(interceptors, make, annotations())
    assert reason in str(refused.value)
    assert given(await created(interceptors, make, annotations(), "log"))[0] == []


@pytest.mark.parametrize(("version", "does"), [("v2.4.0", True), ("2.10.1", True), ("2.3.9", False), ("", False)])
async def test_a_containerd_that_cannot_be_told_to_do_without_cdi_does_it(
    interceptors: Interceptors, runtime: GpuRuntime, make: Any, version: str, does: bool
) -> None:
    """From 2.4 on its configuration has no such field."""
    runtime.version, runtime.config = ("containerd", version), {"sandboxImage": "x"}
    if does:
        assert len((await created(interceptors, make, annotations())).CDI_devices) == 2
    else:
        with pytest.raises(RefusedError, match="has CDI disabled"):
            await created(interceptors, make, annotations())


async def test_specifications_are_read_beside_the_other_calls(
    interceptors: Interceptors, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host may have large ones, on a slow disk: other pods' calls do not wait for them."""
    reading, go_on = threading.Event(), threading.Event()
    names = GpuFolders.names

    def slowly(folders: GpuFolders, *given: Any) -> tuple[str, ...]:
        reading.set()
        assert go_on.wait(10.0)
        return names(folders, *given)

    monkeypatch.setattr(GpuFolders, "names", slowly)
    ours = asyncio.create_task(created(interceptors, make, annotations()))
    assert await asyncio.to_thread(reading.wait, 10.0)
    assert not ours.done()
    go_on.set()
    assert len((await ours).CDI_devices) == 2


async def test_a_new_cri_o_needs_no_setting(interceptors: Interceptors, runtime: GpuRuntime, make: Any) -> None:
    """It tells no configuration; its version says that it takes CDI devices."""
    runtime.version, runtime.config = ("cri-o", "1.31.2"), None
    assert len((await created(interceptors, make, annotations())).CDI_devices) == 2


def record_other(host: Path, units: list[str]) -> None:
    """Record another pod with GPUs."""
    gpus = {"units": units, "uuids": [UUIDS[pci] for pci in units], "containers": {}}
    document = json.dumps(ASSIGNMENT | {"uid": OTHER, "ext": {"gpu": gpus}})
    Records(host / "state", host / "run").write_pod(PodRecord("ml/other", read_assignment(document)))


@pytest.mark.parametrize(
    ("sandboxes", "containers", "units", "refused"),
    [
        ([(OTHER, True)], [], [TWO], True),
        ([(OTHER, False)], [OTHER], [TWO], True),
        ([(OTHER, False)], [], [TWO], False),
        ([], [], [TWO], False),
        ([(OTHER, True)], [OTHER], [], False),
    ],
)
async def test_a_gpu_that_another_pod_still_has_is_not_given(
    interceptors: Interceptors,
    runtime: GpuRuntime,
    gpu_host: Path,
    make: Any,
    sandboxes: list[tuple[str, bool]],
    containers: list[str],
    units: list[str],
    refused: bool,
) -> None:
    """A pod that was force-deleted may run on: a ready sandbox or a running container counts, and nothing else."""
    if units:
        record_other(gpu_host, units)
    runtime.sandboxes, runtime.containers = [(conftest.UID, True), *sandboxes], containers
    if refused:
        with pytest.raises(RefusedError, match=f"GPU {TWO} is held by pod '{OTHER}'"):
            await created(interceptors, make, annotations())
    else:
        assert len((await created(interceptors, make, annotations())).CDI_devices) == 2


async def test_pods_without_gpus_stay_untouched(interceptors: Interceptors, runtime: GpuRuntime, make: Any) -> None:
    """Bit by bit, and the runtime is asked nothing for them; also one that sets NVIDIA's variable."""
    own = [cri.KeyValue(key="NVIDIA_VISIBLE_DEVICES", value="all")]
    for notes in ({}, {"mooring.dev/interfaces": "[]"}):
        raw = make.create(notes, envs=own)
        async with interceptors.create_container(raw) as forwarded:
            assert forwarded == raw
    assert runtime.seen.raw == []


@pytest.mark.parametrize(
    ("notes", "reason"),
    [
        ({"mooring.dev/request.gpu": "{}"}, "requests GPUs but has no annotation 'mooring.dev/assignment'"),
        (annotations(more=1), "ext.gpu.more: unknown field"),
        (annotations(units=[TWO, ONE]), "ext.gpu.units: GPUs are not in the order of their PCI addresses"),
        (annotations(uuids=[UUIDS[ONE]]), "ext.gpu.uuids: 1 different UUIDs for 2 GPUs"),
        (annotations(containers={"trainer": [AMD]}), f"GPU '{AMD}' is not one of the pod's"),
        (annotations(beside={AMD: 0}), "is not one of the pod's GPUs"),
        ({"mooring.dev/assignment": json.dumps(ASSIGNMENT | {"ext": {"gpu": {"units": [ONE]}}})}, "'uuids' is missing"),
    ],
)
async def test_a_pod_whose_gpus_cannot_be_read_is_refused(
    interceptors: Interceptors, make: Any, notes: dict[str, str], reason: str
) -> None:
    """At its sandbox already: nothing is recorded of it."""
    with pytest.raises(RefusedError) as refused:
        await created(interceptors, make, notes)
    assert reason in str(refused.value)


async def test_a_vm_has_no_use_for_a_gpu_of_the_host(interceptors: Interceptors, make: Any) -> None:
    """As for VFs: a runtime handler that is not listed has a kernel of its own."""
    with pytest.raises(RefusedError, match="runtime handler 'kata' may not share"):
        async with interceptors.run_pod_sandbox(make.run(annotations(), handler="kata")):
            pass
    # In the host's network namespace it may be: nothing of a GPU is moved.
    async with interceptors.run_pod_sandbox(make.run(annotations(), handler="runc", host_network=True)):
        pass
