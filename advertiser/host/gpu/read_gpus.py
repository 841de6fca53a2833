"""Read all facts about this host's GPUs at one moment."""

from dataclasses import dataclass, field
from pathlib import Path

from advertiser.host.gpu.documents import GpusFile
from advertiser.host.gpu.kfd import read_kfd
from advertiser.host.gpu.nvidia_proc import read_nvidia_proc
from advertiser.host.gpu.nvml import Nvml
from advertiser.host.gpu.pci_gpus import read_gpu_functions
from advertiser.inventory.gpu.build_gpu_inventory import build_gpu_inventory
from advertiser.inventory.gpu.facts import GpuFacts
from mooring.gpu.cdi_folders import CdiFolders
from mooring.gpu.inventory import GpuInventory
from mooring.gpu.runtime_files import RuntimeFiles


@dataclass(frozen=True, slots=True)
class GpuSources:
    """The sources of facts about a host's GPUs, and the configuration of its container runtime."""

    sysfs: Path
    proc: Path
    cdi: CdiFolders
    file: GpusFile
    nvml: Nvml = field(default_factory=Nvml)
    runtime: RuntimeFiles = field(default_factory=RuntimeFiles)

    def facts(self) -> GpuFacts:
        """Return the facts of all sources; missing sources contribute nothing."""
        return GpuFacts(
            functions=read_gpu_functions(self.sysfs),
            nvidia=read_nvidia_proc(self.proc),
            kfd=read_kfd(self.sysfs),
            nvml=self.nvml.read(),
            cdi=self.cdi.devices(),
            exposed=self.runtime.exposure_reason(),
        )

    def inventory(self, node: str) -> GpuInventory:
        """Return the inventory of this host as ``node``."""
        return build_gpu_inventory(self.facts(), self.file.entries(), node)
