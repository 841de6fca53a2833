"""Read the configuration of the container runtime and of NVIDIA's, which say who gives GPUs to containers."""

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog

from mooring.files import read_file
from mooring.gpu.default_runtime import EXPOSED, Document, exposed

_log = structlog.get_logger()
DEFAULT_RUNTIME = ":".join(
    ("/etc/containerd/config.toml", "/etc/containerd/conf.d", "/etc/crio/crio.conf", "/etc/crio/crio.conf.d")
)
_SUFFIXES = (".toml", ".conf")
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
        try:
            files = sorted(path.iterdir()) if path.is_dir() else [path]
            texts = [read_file(one) for one in files if one.suffix in _SUFFIXES and not one.is_dir()]
            documents = [tomllib.loads(text) for text in texts if text is not None]
        except (OSError, ValueError) as broken:
            _log.error("configuration of the container runtime cannot be read", path=str(path), reason=str(broken))
        else:
            yield from documents
