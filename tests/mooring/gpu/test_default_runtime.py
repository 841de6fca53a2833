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
    assert bool(files.exposure_reason()) == expected


V1_DEFAULT = """
[plugins.cri.containerd]
default_runtime_name = "nvidia"
"""
V2_TABLE = f"""
version = 2
[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.default_runtime]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.default_runtime.options]
BinaryName = "{NVIDIAS}"
"""
V2_RUNC = f"""
version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = "{NVIDIAS}"
"""
LINUX_V1 = f"""
version = 2
[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "gpu"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.gpu]
runtime_type = "io.containerd.runtime.v1.linux"
runtime_engine = "{NVIDIAS}"
"""
CRIO_RUNTIME = """
[crio.runtime.runtimes.{name}]
runtime_path = "{binary}"
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (V1_DEFAULT, True),
        (V2_TABLE, True),
        (V2_RUNC, True),
        (V2_RUNC.replace(NVIDIAS, "/usr/sbin/runc"), False),
        (LINUX_V1, True),
        (CRIO_RUNTIME.format(name="runc", binary=NVIDIAS), True),
        (CRIO_RUNTIME.format(name="crun", binary=NVIDIAS), True),
        (CRIO_RUNTIME.format(name="nvidia", binary=NVIDIAS), False),
        ("", False),
    ],
)
def test_older_forms_and_built_in_defaults_name_the_default_runtime_too(
    tmp_path: Path, text: str, expected: bool
) -> None:
    """Where no default is named it is runc, in CRI-O crun from 1.31 on; whatever executable that has."""
    (tmp_path / "config.toml").write_text(text)
    assert bool(RuntimeFiles((tmp_path / "config.toml",), tmp_path / "none.toml").exposure_reason()) == expected


@pytest.mark.parametrize("pattern", ["sub/*.toml", "/sub/*.toml", "/sub/a.toml"])
def test_imported_files_have_precedence(tmp_path: Path, pattern: str) -> None:
    """containerd reads what ``imports`` names, relative to the file or from the root; what these import as well."""
    (tmp_path / "sub").mkdir()
    text = f"imports = ['{pattern}']\n" + V3.format(name="runc", binary="/usr/bin/runc")
    (tmp_path / "config.toml").write_text(text)
    (tmp_path / "sub/a.toml").write_text("imports = ['a.toml', 'b.toml', '*.toml']\n")
    (tmp_path / "sub/b.toml").write_text("")
    files = RuntimeFiles((tmp_path / "config.toml",), tmp_path / "none.toml", root=tmp_path)
    assert files.exposure_reason() == ""
    (tmp_path / "sub/b.toml").write_text(V3.format(name="nvidia", binary=NVIDIAS))
    assert "NVIDIA_VISIBLE_DEVICES" in files.exposure_reason()


@pytest.mark.parametrize("pattern", ["/elsewhere/*.toml", "sub/absent.toml"])
def test_an_import_that_cannot_be_seen_leaves_the_default_runtime_unknown(tmp_path: Path, pattern: str) -> None:
    """In a pod a folder of the host that is not mounted looks as if it were absent."""
    (tmp_path / "etc").mkdir()
    config = tmp_path / "etc/config.toml"
    config.write_text(f"imports = ['{pattern}']\n")
    files = RuntimeFiles((config,), tmp_path / "none.toml", root=tmp_path)
    assert files.exposure_reason().startswith("the default runtime is unknown: configuration ")
    config.write_text("imports = ['conf.d/*.toml', '/etc/conf.d/*.toml']\n")
    assert files.exposure_reason() == ""


def test_files_of_a_folder_are_read_in_order(tmp_path: Path) -> None:
    """As nvidia-ctk leaves one beside the main file; the last that names a default runtime counts."""
    (tmp_path / "config.toml").write_text(V3.format(name="runc", binary="/usr/bin/runc"))
    (tmp_path / "conf.d").mkdir()
    files = RuntimeFiles((tmp_path / "config.toml", tmp_path / "conf.d", tmp_path / "absent"), tmp_path / "none.toml")
    assert files.exposure_reason() == ""
    (tmp_path / "conf.d/99-nvidia.toml").write_text(V3.format(name="nvidia", binary=NVIDIAS))
    assert "NVIDIA_VISIBLE_DEVICES" in files.exposure_reason()


def test_no_gpu_is_offered_where_the_default_runtime_is_not_known(tmp_path: Path) -> None:
    """The runtime may run with what the file said before it was broken."""
    (tmp_path / "conf.d").mkdir()
    for path, file in (("config.toml", "config.toml"), ("conf.d", "conf.d/1.toml")):
        files = RuntimeFiles((tmp_path / path,), tmp_path / "none.toml")
        assert files.exposure_reason() == ""
        (tmp_path / file).write_text("[")
        unknown = f"the default runtime is unknown: configuration {str(tmp_path / path)!r} cannot be read: "
        assert files.exposure_reason().startswith(unknown)


def test_a_broken_configuration_of_nvidias_takes_the_variable_from_nobody(tmp_path: Path) -> None:
    """As without it: the default is to believe it."""
    (tmp_path / "config.toml").write_text(V3.format(name="nvidia", binary=NVIDIAS))
    (tmp_path / "nvidia.toml").write_text(OFF + "[")
    assert (
        "NVIDIA_VISIBLE_DEVICES"
        in RuntimeFiles((tmp_path / "config.toml",), tmp_path / "nvidia.toml").exposure_reason()
    )
