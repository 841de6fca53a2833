"""Read the configuration of the container runtime and of NVIDIA's, which say who gives GPUs to containers."""

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog

from advertiser.host.sysfs import list_entries
from advertiser.inventory.gpu.default_runtime import EXPOSED, Document, exposed
from mooring.files import read_file

_log = structlog.get_logger()
DEFAULT_RUNTIME = ":".join(
    ("/etc/containerd/config.toml", "/etc/containerd/conf.d", "/etc/crio/crio.conf", "/etc/crio/crio.conf.d")
)
DEFAULT_TOOLKIT = "/etc/nvidia-container-runtime/config.toml"


@dataclass(frozen=True, slots=True)
class RuntimeFiles:
    """Files, and folders of files that are read in the order of their names; those that are absent say nothing."""

    runtime: tuple[Path, ...] = ()
    toolkit: Path = Path(DEFAULT_TOOLKIT)

    def why_exposed(self) -> str:
        """Return why no GPU of this host can be offered, empty if nothing of that speaks against it."""
        toolkit = next(iter(_read([self.toolkit])), None)
        return EXPOSED if exposed(list(_read(self.runtime)), toolkit) else ""


def _read(paths: Iterable[Path]) -> Iterator[Document]:
    for path in paths:
        for file in [one for one in list_entries(path) if one.suffix in (".toml", ".conf")] or [path]:
            try:
                text = None if file.is_dir() else read_file(file)
                if text is not None:
                    yield tomllib.loads(text)
            except (OSError, ValueError) as broken:
                _log.error("configuration of the container runtime cannot be read", path=str(file), reason=str(broken))
