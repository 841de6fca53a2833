"""Whether any container can take GPUs by a variable: by the default runtime, and what NVIDIA's believes."""

from pathlib import Path

import pytest

from mooring.gpu.runtime_files import RuntimeFiles

V2 = """
version = 2
[plugins."io.containerd.grpc.v1.cri".containerd]
  default_runtime_name = "{name}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{name}.options]
    BinaryName = "{binary}"
"""
V3 = """
version = 3
[plugins.'io.containerd.cri.v1.runtime'.containerd]
  default_runtime_name = '{name}'
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.{name}.options]
    BinaryName = '{binary}'
"""
CRIO = """
[crio.runtime]
default_runtime = "{name}"
[crio.runtime.runtimes.{name}]
runtime_path = "{binary}"
"""
OFF = "accept-nvidia-visible-devices-envvar-when-unprivileged = false\n"
NVIDIAS = "/usr/bin/nvidia-container-runtime"


@pytest.mark.parametrize("form", [V2, V3, CRIO])
@pytest.mark.parametrize(
    ("name", "binary", "toolkit", "expected"),
    [
        ("runc", "/usr/bin/runc", None, False),
        ("nvidia", NVIDIAS, None, True),
        ("nvidia", NVIDIAS, "[nvidia-container-cli]\n", True),
        ("nvidia", NVIDIAS, OFF, False),
        ("gpu", "/opt/nvidia/toolkit/nvidia-container-runtime.cdi", None, True),
        ("gpu", "/usr/bin/crun", None, False),
    ],
)
def test_the_default_runtime_decides(
    tmp_path: Path, form: str, name: str, binary: str, toolkit: str | None, expected: bool
) -> None:
    """By its executable, whatever its name; NVIDIA's configuration may take the variable from it."""
    (tmp_path / "config.toml").write_text(form.format(name=name, binary=binary))
    if toolkit is not None:
        (tmp_path / "nvidia.toml").write_text(toolkit)
    files = RuntimeFiles((tmp_path / "config.toml",), tmp_path / "nvidia.toml")
    assert bool(files.why_exposed()) == expected


def test_files_of_a_folder_are_read_in_order(tmp_path: Path) -> None:
    """As nvidia-ctk leaves one beside the main file; the last that names a default runtime counts."""
    (tmp_path / "config.toml").write_text(V3.format(name="runc", binary="/usr/bin/runc"))
    (tmp_path / "conf.d").mkdir()
    files = RuntimeFiles((tmp_path / "config.toml", tmp_path / "conf.d", tmp_path / "absent"), tmp_path / "none.toml")
    assert files.why_exposed() == ""
    (tmp_path / "conf.d/99-nvidia.toml").write_text(V3.format(name="nvidia", binary=NVIDIAS))
    assert "NVIDIA_VISIBLE_DEVICES" in files.why_exposed()


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    """The runtime would not start with it either; the log says so."""
    (tmp_path / "config.toml").write_text("[")
    assert RuntimeFiles((tmp_path / "config.toml",), tmp_path / "none.toml").why_exposed() == ""
