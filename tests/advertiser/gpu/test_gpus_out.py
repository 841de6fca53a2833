"""Why a GPU is out, each reason from the source that tells it, and what the others of the host stay."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from advertiser.host.gpu.nvml import Nvml
from mooring.gpu.default_runtime import EXPOSURE
from mooring.gpu.inventory import GpuOut
from mooring.gpu.runtime_files import RuntimeFiles
from tests.advertiser.gpu.trees import Host, uuid_of, write_cdi
from tests.support import polling
from tests.support.polling import wait_until

MakeHost = Callable[[str], Host]


@pytest.fixture
def h100(make_host: MakeHost) -> Host:
    return make_host("hgx-h100")


@pytest.fixture
def mi300x(make_host: MakeHost) -> Host:
    return make_host("mi300x")


def _only_out(host: Host) -> str:
    """Return why the first GPU is out, which all others are not."""
    found = host.sources().inventory("n1")
    assert [gpu.pci for gpu in found.gpus] == host.gpus[1:]
    (out,) = found.out
    assert out.pci == host.gpus[0]
    return out.why


def _rebind(host: Host, driver: str | None) -> None:
    link = host.folder(0) / "driver"
    link.unlink()
    if driver is not None:
        link.symlink_to(f"../../../../../bus/pci/drivers/{driver}")


def _information(host: Host, old: str, new: str) -> None:
    path = host.root / "proc/driver/nvidia/gpus" / host.gpus[0] / "information"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.parametrize(
    ("driver", "why"), [(None, "no driver"), ("vfio-pci", "bound to vfio-pci"), ("nouveau", "bound to nouveau")]
)
def test_a_gpu_with_another_driver_or_none_is_out(h100: Host, driver: str | None, why: str) -> None:
    """Or none: containers would get nothing, or the GPU is a virtual machine's."""
    _rebind(h100, driver)
    assert _only_out(h100) == why


@pytest.mark.parametrize("modes", [[1, 1], [0, 1], [1, 0]])
def test_mig_mode_now_or_after_the_next_reset(h100: Host, modes: list[int]) -> None:
    """As NVML tells it."""
    assert h100.nvml is not None
    h100.nvml.gpus[0].MigMode = modes
    assert _only_out(h100) == "MIG is on"


def test_mig_instances_are_seen_without_nvml(h100: Host) -> None:
    """In the driver's capabilities; monitor and config, which are there without MIG, are no instances."""
    mig = h100.root / "proc/driver/nvidia/capabilities/gpu0/mig"
    (mig / "gi1/ci0").mkdir(parents=True)
    (h100.root / "proc/driver/nvidia/capabilities/mig").mkdir()
    assert _only_out(h100) == "MIG is on"


def test_a_gpu_that_the_driver_excludes(h100: Host) -> None:
    """NVIDIA's driver leaves GPUs out that an administrator or a failed NVSwitch excludes."""
    _information(h100, "GPU Excluded:\t No", "GPU Excluded:\t Yes")
    assert _only_out(h100) == "NVIDIA's driver excludes it"


def test_a_partitioned_gpu_of_amd(mi300x: Host) -> None:
    """One function is several GPUs then."""
    (mi300x.folder(0) / "current_compute_partition").write_text("CPX\n")
    assert _only_out(mi300x) == "compute partition CPX"


def test_an_xid_error_until_the_program_starts_again(h100: Host) -> None:
    """A GPU that fell off the bus is out; a process's own fault is not the GPU's."""
    assert h100.nvml is not None
    sources = h100.sources()
    assert sources.inventory("n1").out == ()
    h100.nvml.xid(0, 79)
    h100.nvml.xid(1, 31)
    for _ in range(2):
        out = GpuOut(h100.gpus[0], "Xid 79 since the advertiser started")
        assert sources.inventory("n1").out == (out,)


@pytest.mark.parametrize(
    ("state", "status", "why"),
    [
        (1, 0, "its NVSwitch fabric is not set up (not started): is the fabric manager running?"),
        (2, 0, "its NVSwitch fabric is not set up (in progress): is the fabric manager running?"),
        (3, 999, "its NVSwitch fabric failed (NVML status 999): see the fabric manager's log"),
    ],
)
def test_a_gpu_whose_fabric_is_not_set_up(h100: Host, state: int, status: int, why: str) -> None:
    """CUDA does not start there (error 802); nvmlDeviceGetGpuFabricInfo of Hopper and later tells."""
    assert h100.nvml is not None
    h100.nvml.gpus[0].FabricInfo = (state, status)
    assert _only_out(h100) == why
    for ready in ((3, 0), (0, 0)):
        h100.nvml.gpus[0].FabricInfo = ready
        assert h100.sources().inventory("n1").out == ()


HOOK = {"hookName": "createContainer", "path": "/usr/local/nvidia/toolkit/nvidia-cdi-hook"}


def test_the_vendors_own_kind_counts_beside_a_device_plugins(h100: Host) -> None:
    """NVIDIA's device plugin leaves k8s.device-plugin.nvidia.com/gpu in /var/run/cdi, with its own hook's path."""
    devices = {str(index): [f"nvidia{index}"] for index in range(8)}
    plugins = "k8s.device-plugin.nvidia.com/gpu"
    write_cdi(h100.root, plugins, devices, folder="var/run/cdi", containerEdits={"hooks": [HOOK]})
    assert h100.sources().inventory("n1").out == ()


def test_two_devices_that_define_a_gpu_differently(h100: Host) -> None:
    """The shim would refuse each container with it: it is not placed there."""
    write_cdi(h100.root, "nvidia.com/gpu", {"0": ["nvidia0"], **{str(i): [f"nvidia{i}"] for i in range(1, 8)}})
    other = [{"name": "odd", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}], "hooks": [HOOK]}}]
    path = h100.root / "etc/cdi/more.yaml"
    path.write_text(yaml.safe_dump({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": other}))
    assert _only_out(h100) == "CDI devices nvidia.com/gpu=0 and nvidia.com/gpu=odd define it differently"


def test_a_gpu_in_no_cdi_specification_is_out(h100: Host) -> None:
    """Then no container could get it; the other GPUs' devices stay."""
    devices = {str(index): [f"nvidia{index}"] for index in range(1, 8)}
    write_cdi(h100.root, "nvidia.com/gpu", devices)
    assert _only_out(h100) == "no CDI specification describes it"


@pytest.mark.parametrize(
    "nodes", [["nvidia0", "nvidia1"], ["nvidia0", "nvidia-caps/nvidia-cap21"], ["nvidiactl"], ["nvidia01"]]
)
def test_a_device_that_does_not_hold_exactly_the_gpu(h100: Host, nodes: list[str]) -> None:
    """With a second GPU, with a MIG slice, without any GPU, or with a name that only resembles the GPU's."""
    devices = {str(index): [f"nvidia{index}"] for index in range(1, 8)}
    write_cdi(h100.root, "nvidia.com/gpu", devices | {"odd": nodes})
    assert _only_out(h100) == "no CDI specification describes it"


def test_a_later_folder_has_precedence_and_twice_in_one_is_none(h100: Host) -> None:
    """As container runtimes resolve a name."""
    two_gpus = {uuid_of(h100.layout, 0): ["nvidia0", "nvidia1"], "0": ["nvidia0", "nvidia1"]}
    late = write_cdi(h100.root, "nvidia.com/gpu", two_gpus, folder="var/run/cdi")
    assert _only_out(h100) == "no CDI specification describes it"
    late.unlink()
    assert h100.sources().inventory("n1").out == ()
    path = h100.root / "etc/cdi/nvidia.com-gpu.yaml"
    (path.parent / "again.yaml").write_text(path.read_text())
    assert {gpu.why for gpu in h100.sources().inventory("n1").out} == {"no CDI specification describes it"}


@pytest.mark.parametrize("text", ["", "[", "kind: 3", "{kind: a.com/b}", "{kind: a.com/b, devices: [{name: x}, 1]}"])
def test_an_unreadable_specification_is_no_reason_to_stop(h100: Host, text: str) -> None:
    """The rest of the host's specifications counts, and a program that runs goes on."""
    (h100.root / "etc/cdi/broken.yaml").write_text(text)
    assert h100.sources().inventory("n1").out == ()


def test_a_gpu_whose_uuid_is_not_known_is_out(h100: Host) -> None:
    """NVIDIA's driver shows question marks before it has opened the GPU once."""
    assert h100.nvml is not None
    del h100.nvml.gpus[0].UUID
    uuid = uuid_of(h100.layout, 0)
    _information(h100, uuid, "GPU-????????-????-????-????-????????????")
    assert _only_out(h100) == "its UUID is unknown"
    (h100.root / "gpus.yaml").write_text(f'{{v: 1, gpus: [{{match: {{pci: "{h100.gpus[0]}"}}, uuid: {uuid}}}]}}')
    assert h100.sources().inventory("n1").out == ()


def test_one_uuid_for_two_gpus(mi300x: Host) -> None:
    """Neither is certain: a file of another host says so, or a card's data are broken."""
    (mi300x.folder(1) / "unique_id").write_text((mi300x.folder(0) / "unique_id").read_text())
    found = mi300x.sources().inventory("n1")
    assert {gpu.why for gpu in found.out} == {f"another GPU has the UUID {uuid_of(mi300x.layout, 0)} too"}
    assert [gpu.pci for gpu in found.out] == mi300x.gpus[:2]


def test_the_operators_word_counts_on_the_nodes_that_it_names(h100: Host) -> None:
    """Whatever the sources say."""
    entry = f'{{match: {{node: "gpu-*", pci: "{h100.gpus[0]}"}}, out: for the host\'s displays}}'
    (h100.root / "gpus.yaml").write_text(f"{{v: 1, gpus: [{entry}]}}")
    sources = h100.sources()
    assert sources.inventory("n1").out == ()
    assert sources.inventory("gpu-1").out == (GpuOut(h100.gpus[0], "for the host's displays"),)


def test_a_broken_file_leaves_the_last_good_one(h100: Host) -> None:
    """As the offer does; an unknown field is an error."""
    path = h100.root / "gpus.yaml"
    path.write_text('{v: 1, gpus: [{match: {pci: "0000:1b:*"}, out: mine}]}')
    sources = h100.sources()
    path.write_text('{v: 1, gpus: [{match: {pci: "0000:1b:*"}, owt: mine}]}')
    assert [gpu.why for gpu in sources.inventory("n1").out] == ["mine"]


def test_what_is_no_gpu_is_left_out(h100: Host) -> None:
    """Another vendor's function, an audio function of NVIDIA's, an NVSwitch, and a VF of this host's own GPU."""
    for number, (vendor, kind) in enumerate((("0x1a03", "0x030000"), ("0x10de", "0x040300"), ("0x10de", "0x068000"))):
        folder = h100.sysfs / f"bus/pci/devices/0000:fe:00.{number}"
        folder.mkdir()
        (folder / "vendor").write_text(vendor)
        (folder / "class").write_text(kind)
    (h100.folder(0) / "physfn").symlink_to("../somewhere")
    found = h100.sources().inventory("n1")
    assert [gpu.pci for gpu in found.gpus] == h100.gpus[1:]
    assert found.out == ()


def test_links_of_xgmi_without_kfd(mi300x: Host) -> None:
    """A container whose device cgroup allows no render node cannot read KFD: the hive says the same."""
    for path in sorted((mi300x.sysfs / "class").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    assert {gpu.link for gpu in mi300x.sources().inventory("n1").gpus} == {0}
    for index in range(4):
        (mi300x.folder(index) / "xgmi_hive_info/xgmi_hive_id").write_text("7\n")
    assert [gpu.link for gpu in mi300x.sources().inventory("n1").gpus] == [0] * 4 + [1] * 4


def test_links_and_ids_of_kfd_without_the_other_files(mi300x: Host) -> None:
    """The GPUs of its topology are found again by their location."""
    for index in range(8):
        (mi300x.folder(index) / "xgmi_hive_info/xgmi_hive_id").unlink()
        (mi300x.folder(index) / "unique_id").unlink()
    found = mi300x.sources().inventory("n1").gpus
    assert [(gpu.link, gpu.uuid) for gpu in found] == [(0, uuid_of(mi300x.layout, index)) for index in range(8)]


def test_nvml_that_stops_answering_is_opened_again(h100: Host) -> None:
    """Without it links and memory are unknown, and the GPUs stay on offer by what procfs says."""
    assert h100.nvml is not None
    sources = h100.sources()
    h100.nvml.works = False
    assert {gpu.memory_mb for gpu in sources.inventory("n1").gpus} == {None}
    h100.nvml.works = True
    assert {gpu.memory_mb for gpu in sources.inventory("n1").gpus} == {81559}
    h100.nvml.works = False
    assert {gpu.link for gpu in sources.inventory("n1").gpus} == {None}
    h100.nvml.works = True
    assert {gpu.link for gpu in sources.inventory("n1").gpus} == {0}


def _mig(nvml: Nvml) -> list[str]:
    """Return the GPUs that the library says are cut."""
    return [address for address, gpu in (nvml.read() or {}).items() if gpu.mig]


def test_nvml_that_hangs_keeps_nobody_waiting(h100: Host) -> None:
    """Its last answer stands until it answers again, and the VFs of the host are published meanwhile."""
    assert h100.nvml is not None
    hung = threading.Event()
    # It opens the library and answers once; every later question hangs.
    passes = iter([True, True])
    h100.nvml.before_count = lambda: next(passes, False) or hung.wait(polling.LIMIT_S)
    nvml = Nvml(lambda: h100.nvml, longest_s=0.0)
    wait_until(nvml.read)
    h100.nvml.gpus[0].MigMode = [1, 1]
    for _ in range(3):
        assert _mig(nvml) == []
    hung.set()
    wait_until(lambda: _mig(nvml) == h100.gpus[:1])


def test_a_host_without_any_of_it_has_no_gpus(tmp_path: Path) -> None:
    """Nor an error."""
    host = Host(tmp_path, {"gpus": []}, None)
    found = host.sources().inventory("n1")
    assert (found.gpus, found.out) == ((), ())


def test_none_is_offered_while_any_container_can_take_one(make_host: MakeHost) -> None:
    """By a variable that the default runtime believes; the reason is the same for all."""
    host = make_host("hgx-h100")
    (host.root / "config.toml").write_text(
        '[plugins."io.containerd.grpc.v1.cri".containerd]\ndefault_runtime_name = "nvidia"\n'
    )
    files = RuntimeFiles((host.root / "config.toml",), host.root / "none.toml")
    found = replace(host.sources(), runtime=files).inventory("n1")
    assert (found.gpus, {gpu.why for gpu in found.out}) == ((), {EXPOSURE})
