"""The runtime needs nothing of its host but a kernel and a shell, and its children inherit nothing of it."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from release.runtime import ARCHITECTURES, NODE_PROGRAMS, elf
from tests.release.runtime.conftest import Members
from tests.support.built_release import ARCH
from tests.support.seeds import Part

pytestmark = pytest.mark.wheels

_RUNTIME = "/opt/mooring/runtime"
_PYTHON = f"{_RUNTIME}/python/bin/python3"
_EMULATORS = {"arm64": "qemu-aarch64-static", "amd64": "qemu-x86_64-static"}
_IMPORTS = """
import aiohttp, cryptography.x509, grpc, msgspec, pyroute2, ssl
from kubernetes.client import Configuration
from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger
import cli.node.hardware.run
ssl.create_default_context()
print("imported")
"""
_CHILDREN = """
import subprocess, sys
subprocess.run(["/bin/env"], check=True)
subprocess.run([sys.executable, "-I", "-c", "import ssl, sys; print(sys.executable)"], check=True)
"""


def _root(members: Members, root: Path, emulator: str | None) -> Path:
    """Write a root folder with the runtime and otherwise nothing but busybox; the emulator starts the loader."""
    for name, member in members.items():
        path = root / _RUNTIME[1:] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = member.content
        if emulator is not None and name.startswith(("bin/", "python/bin/python3")):
            content = content.replace(b'\nexec "', f'\nexec /bin/{emulator} "'.encode())
        path.write_bytes(content)
        path.chmod(member.mode)
    (root / "bin").mkdir()
    for program in filter(None, ("busybox", emulator)):
        source = shutil.which(program)
        assert source is not None, f"program {program!r} is not installed (Debian: busybox-static, qemu-user-static)"
        shutil.copy(source, root / "bin" / program)
    for name in ("sh", "readlink", "env"):
        (root / "bin" / name).symlink_to("busybox")
    return root


def _chroot(root: Path, *command: str) -> str:
    environment = {"PATH": "/bin", "LC_ALL": "C.UTF-8"}
    chroot = [str(shutil.which("chroot")), str(root), *command]
    done = subprocess.run(chroot, env=environment, capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.root
def test_programs_start_where_there_is_only_busybox(
    built: Callable[[str], Members], tmp_path: Path, part: Part
) -> None:
    """Every program, also through a link, and the libraries of wheels; with --long for the other machine by qemu."""
    for arch in ARCHITECTURES if part.whole else (ARCH,):
        root = _root(built(arch), tmp_path / arch, None if arch == ARCH else _EMULATORS[arch])
        (root / "bin/linked").symlink_to(f"..{_RUNTIME}/bin/mooring-cni")
        for program in (*(f"{_RUNTIME}/bin/{name}" for name in NODE_PROGRAMS), "/bin/linked"):
            assert _chroot(root, program, "--version").startswith("mooring-")
        assert _chroot(root, _PYTHON, "-I", "-c", _IMPORTS) == "imported\n"
        # A child inherits no setting of the runtime, and one that is the same Python starts nevertheless.
        *environment, child = _chroot(root, _PYTHON, "-I", "-c", _CHILDREN).splitlines()
        names = {line.partition("=")[0] for line in environment}
        assert names - {"PWD", "SHLVL", "OLDPWD"} == {"LC_ALL", "PATH"}
        assert child == _PYTHON
        if arch == ARCH:
            assert _environment_of_plugin(root, tmp_path) == [sys.prefix]


_PLUGIN = """\
#!{python}
import os, ssl, sys
with open({told!r}, "w") as told:
    print(sys.prefix, *(name for name in os.environ if name.startswith(("PYTHON", "LD_"))), file=told)
print("{{}}")
"""
_STATUS = """
from cni.vf.ipam import delegate
delegate("STATUS", {{"cniVersion": "1.1.0", "ipam": {{"type": "plugin"}}}}, ({folder!r},))
"""


def _environment_of_plugin(root: Path, folder: Path) -> list[str]:
    """Call an IPAM plugin of the host's Python by the CNI plugin; return its prefix and what it inherited."""
    plugin, told = folder / "plugin", folder / "told"
    plugin.write_text(_PLUGIN.format(python=sys.executable, told=str(told)))
    plugin.chmod(0o755)
    command = [str(root / _PYTHON[1:]), "-I", "-c", _STATUS.format(folder=str(folder))]
    done = subprocess.run(command, env={"PATH": "/usr/bin:/bin"}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return told.read_text().split()


def test_the_runtime_has_every_library_that_its_files_need(runtime: Members) -> None:
    """By DT_NEEDED; what a wheel brings of its own counts."""
    files = {path: elf.read(path, member.content) for path, member in runtime.items() if elf.is_elf(member.content)}
    names = {path.rpartition("/")[2] for path in files}
    assert {name for one in files.values() for name in one.needs} <= names
    assert {one.arch for one in files.values()} == {ARCH}


def test_the_runtime_has_the_terms_of_each_package(runtime: Members) -> None:
    """Of Debian's below licenses/, with the texts that they refer to."""
    assert b"GNU Lesser General Public" in runtime["licenses/libc6"].content
    assert b"GNU LESSER GENERAL" in runtime["licenses/common-licenses/LGPL-2.1"].content


def test_the_runtime_has_no_hook_for_simulated_settings(runtime: Members) -> None:
    """A simulated host adds a file of its own; nothing of a release imports it, or knows of such hosts."""
    names = {path.rpartition("/")[2] for path in runtime}
    assert not {name for name in names if name.endswith(".pth") or name in ("sitecustomize.py", "usercustomize.py")}
    code = {path: member.content for path, member in runtime.items() if path.endswith((".py", ".pyc"))}
    assert "python/lib/python3.11/dist-packages/mooring/nic/vf_settings.py" in code
    assert not [path for path, content in code.items() if b"devcluster" in content]
