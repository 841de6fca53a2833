"""Whether any pod can take GPUs by an environment variable, past the scheduler: a node where it can offers none. Pure.

NVIDIA's container runtime gives a container the GPUs that its variable NVIDIA_VISIBLE_DEVICES names, and CUDA's images
set it to ``all``. Where it is the default runtime it sees every container, and unless its configuration says otherwise
it believes unprivileged ones too. Sources: NVIDIA Container Toolkit, "Installation guide" (``nvidia-ctk runtime
configure --set-as-default``) and its config.toml, of which
``accept-nvidia-visible-devices-envvar-when-unprivileged`` is true where it is not set; containerd's
docs/cri/config.md, for versions 2 and 3 of its configuration; CRI-O's crio.conf(5), ``default_runtime``.
"""

from collections.abc import Mapping, Sequence
from typing import cast

Document = Mapping[str, object]
ACCEPT = "accept-nvidia-visible-devices-envvar-when-unprivileged"
EXPOSED = "the default runtime is NVIDIA's and gives GPUs to any container that sets NVIDIA_VISIBLE_DEVICES"
_EXECUTABLE = "nvidia-container-runtime"
# Where containerd's CRI plugin has its runtimes: by versions 2 and 3 of the configuration.
_CONTAINERD = (("plugins", "io.containerd.grpc.v1.cri"), ("plugins", "io.containerd.cri.v1.runtime"))


def exposed(runtime: Sequence[Document], toolkit: Document | None) -> bool:
    """Return whether it is so, by a runtime's files, of which a later one has precedence, and NVIDIA's own."""
    if toolkit is not None and toolkit.get(ACCEPT) is False:
        return False
    return _default_is_nvidias(runtime, [(*path, "containerd") for path in _CONTAINERD], "default_runtime_name") or (
        _default_is_nvidias(runtime, [("crio", "runtime")], "default_runtime")
    )


def _default_is_nvidias(files: Sequence[Document], sections: Sequence[tuple[str, ...]], key: str) -> bool:
    found = [section for file in files for path in sections if (section := _at(file, path))]
    name = next((value for section in reversed(found) if isinstance(value := section.get(key), str) and value), None)
    if name is None:
        return False
    runtimes = [_at(section, ("runtimes", name)) for section in found]
    paths = [_executable(runtime) for runtime in runtimes]
    executable = next((path for path in reversed(paths) if path), name)
    return executable.rpartition("/")[2].startswith(_EXECUTABLE) or name.startswith("nvidia")


def _executable(runtime: Document) -> str:
    value = _at(runtime, ("options",)).get("BinaryName") or runtime.get("runtime_path")
    return value if isinstance(value, str) else ""


def _at(document: Document, path: Sequence[str]) -> Document:
    for step in path:
        value = document.get(step)
        document = cast(Document, value) if isinstance(value, Mapping) else {}
    return document
