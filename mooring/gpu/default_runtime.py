"""Determine whether any pod could take GPUs with an environment variable; such a node offers no GPUs. Pure.

NVIDIA's container runtime gives a container the GPUs in its variable NVIDIA_VISIBLE_DEVICES, and CUDA images set that
to ``all``. If it is the default runtime, it handles every container, and by default it accepts the variable of
unprivileged ones. Sources: NVIDIA Container Toolkit, "Installation guide" (``nvidia-ctk runtime configure
--set-as-default``) and its config.toml, where ``accept-nvidia-visible-devices-envvar-when-unprivileged`` defaults to
true; containerd's docs/cri/config.md, for versions 2 and 3 of its configuration; pkg/cri/config/config.go of 1.6 and
1.7, whose ValidatePluginConfig prefers the deprecated table ``default_runtime`` to the name; ``containerd config dump``
of 1.6, which reads version 1 (``plugins.cri``), and defaults to runc; CRI-O's crio.conf(5), ``default_runtime``, which
defaults to crun since 1.31 and to runc before.
"""

from collections.abc import Mapping, Sequence
from typing import cast

Document = Mapping[str, object]
ACCEPT = "accept-nvidia-visible-devices-envvar-when-unprivileged"
EXPOSURE = "the default runtime is NVIDIA's and gives GPUs to any container that sets NVIDIA_VISIBLE_DEVICES"
_EXECUTABLE = "nvidia-container-runtime"
# The sections of containerd's CRI plugin with its runtimes, in versions 1, 2 and 3 of the configuration.
_CONTAINERD = tuple(
    ("plugins", name, "containerd") for name in ("cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
)
# The keys of a runtime's executable; depending on the runtime's type they are in its options or beside them.
_EXECUTABLES = ("BinaryName", "Runtime", "runtime_engine", "runtime_path")


def exposes_gpus(runtime: Sequence[Document], toolkit: Document | None) -> bool:
    """Return whether pods can take GPUs, from the runtime's files (later ones take precedence) and NVIDIA's file."""
    if toolkit is not None and toolkit.get(ACCEPT) is False:
        return False
    containerd = _sections(runtime, _CONTAINERD)
    crio = _sections(runtime, [("crio", "runtime")])
    # containerd 1.x prefers this table to any name.
    if any(_is_nvidias(_executable(_at(section, ("default_runtime",)))) for section in containerd):
        return True
    return _default_is_nvidias(containerd, "default_runtime_name", ("runc",)) or (
        _default_is_nvidias(crio, "default_runtime", ("crun", "runc"))
    )


def _sections(files: Sequence[Document], paths: Sequence[tuple[str, ...]]) -> list[Document]:
    return [section for file in files for path in paths if (section := _at(file, path))]


def _default_is_nvidias(sections: Sequence[Document], key: str, built_in: Sequence[str]) -> bool:
    """Return whether the last configured default is NVIDIA's runtime or, without one, a built-in default is."""
    configured_names = [value for section in sections if isinstance(value := section.get(key), str) and value]
    return any(_names_nvidias(sections, name) for name in (configured_names[-1:] or built_in))


def _names_nvidias(sections: Sequence[Document], name: str) -> bool:
    paths = [_executable(_at(section, ("runtimes", name))) for section in sections]
    executable = next((path for path in reversed(paths) if path), name)
    return _is_nvidias(executable) or name.startswith("nvidia")


def _is_nvidias(executable: str) -> bool:
    return executable.rpartition("/")[2].startswith(_EXECUTABLE)


def _executable(runtime: Document) -> str:
    values = {**runtime, **_at(runtime, ("options",))}
    return next((value for name in _EXECUTABLES if isinstance(value := values.get(name), str) and value), "")


def _at(document: Document, path: Sequence[str]) -> Document:
    for step in path:
        value = document.get(step)
        document = cast(Document, value) if isinstance(value, Mapping) else {}
    return document
