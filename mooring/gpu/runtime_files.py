"""Read the configuration of the container runtime and of NVIDIA's, which say who gives GPUs to containers."""

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mooring.files import read_file
from mooring.gpu.default_runtime import EXPOSED, Document, exposed

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
        """Return why no GPU of this host can be offered, empty if nothing of that speaks against it.

        A runtime may run with what a file said before: one that cannot be read now speaks against it.
        """
        try:
            runtime = list(_read(self.runtime))
        except UnreadableError as unknown:
            return str(unknown)
        try:
            toolkit = next(_read([self.toolkit]), None)
        except UnreadableError:
            # As without the file: NVIDIA's runtime believes the variable.
            toolkit = None
        return EXPOSED if exposed(runtime, toolkit) else ""


class UnreadableError(ValueError):
    """A file that leaves the default runtime unknown."""


def _read(paths: Iterable[Path]) -> Iterator[Document]:
    for path in paths:
        try:
            files = sorted(path.iterdir()) if path.is_dir() else [path]
            texts = [read_file(one) for one in files if one.suffix in _SUFFIXES and not one.is_dir()]
            documents = [tomllib.loads(text) for text in texts if text is not None]
        except (OSError, ValueError) as broken:
            what = f"the default runtime is not known: configuration {str(path)!r} cannot be read: {broken}"
            raise UnreadableError(what) from broken
        yield from documents
