"""Read the configuration of the container runtime and of NVIDIA's runtime, which can give GPUs to containers.

A file of containerd can import others, by globs relative to its folder; imported files take precedence.
Source: containerd-config.toml(5), ``imports``, and ``containerd config dump`` of 1.6.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path

from mooring.files import read_file
from mooring.folders import entry_names
from mooring.gpu.default_runtime import EXPOSURE, Document, exposes_gpus

DEFAULT_RUNTIME = ":".join(
    ("/etc/containerd/config.toml", "/etc/containerd/conf.d", "/etc/crio/crio.conf", "/etc/crio/crio.conf.d")
)
_SUFFIXES = (".toml", ".conf")
_OF_CRIO = "crio.conf.d"
_MOST_FILES = 256
DEFAULT_TOOLKIT = "/etc/nvidia-container-runtime/config.toml"


@dataclass(frozen=True, slots=True)
class RuntimeFiles:
    """Configuration files, and folders of files that are read in order of their names; missing ones are skipped.

    ``root`` is the folder below which the host's absolute paths are.
    """

    runtime: tuple[Path, ...] = ()
    toolkit: Path = Path(DEFAULT_TOOLKIT)
    root: Path = Path("/")

    def exposure_reason(self) -> str:
        """Return why the runtime's configuration forbids to offer GPUs of this host, empty if it does not.

        A file that cannot be read forbids it, too, because the runtime may have read it before.
        """
        try:
            runtime = [document for path in self.runtime for document in documents(path, self.root)]
        except UnreadableError as error:
            return f"the default runtime is unknown: {error}"
        try:
            toolkit = next(documents(self.toolkit, self.root), None)
        except UnreadableError:
            # As without the file: NVIDIA's runtime accepts the variable.
            toolkit = None
        return EXPOSURE if exposes_gpus(runtime, toolkit) else ""


class UnreadableError(ValueError):
    """A file of a runtime's configuration cannot be read."""


def documents(path: Path, root: Path) -> Iterator[Document]:
    """Yield a file, or the files of a folder, each before the files that it imports; raise UnreadableError.

    CRI-O reads every file of its folder, whatever its name (UpdateFromPath in cri-o's pkg/config/config.go).
    OpenShift's is called 00-default.
    """
    try:
        files = [path / name for name in entry_names(path, lambda _: True)] if path.is_dir() else [path]
        is_any = path.name == _OF_CRIO
        queue = [entry for entry in files if (is_any or entry.suffix in _SUFFIXES) and not entry.is_dir()]
        queued_files = set(queue)
        for _ in range(_MOST_FILES):
            if not queue:
                return
            file = queue.pop(0)
            text = read_file(file)
            if text is None:
                continue
            document = tomllib.loads(text)
            yield document
            new_files = [entry for entry in _imports(document, file.parent, root) if entry not in queued_files]
            queued_files.update(new_files)
            queue = new_files + queue
        raise ValueError(f"more than {_MOST_FILES} files")
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableError(f"configuration {str(path)!r} cannot be read: {error}") from error


def _imports(document: Document, folder: Path, root: Path) -> Iterator[Path]:
    """Yield the files that a document imports; raise ValueError for files that may exist but are not mounted here."""
    patterns = document.get("imports")
    for pattern in patterns if isinstance(patterns, list) else ():
        if not isinstance(pattern, str):
            continue
        path = root / pattern.lstrip("/") if pattern.startswith("/") else folder / pattern
        literal_path = next(parent for parent in (path, *path.parents) if not has_magic(str(parent)))
        # In a pod, folders that are not mounted look absent; the importing file's folder is mounted.
        if not literal_path.exists() and (literal_path == path or not literal_path.is_relative_to(folder)):
            raise ValueError(f"its import {pattern!r} does not exist, or is not mounted here")
        yield from [path] if literal_path == path else sorted(literal_path.glob(str(path.relative_to(literal_path))))
