"""Hosts below a folder: what a kubeadm or a CRI-O node has, and releases that were built before."""

import contextlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest

from cli.node import venv
from cli.node.__main__ import main

FLANNEL = '{"cniVersion":"0.3.1","name":"cbr0","plugins":[{"type":"flannel"},{"type":"portmap"}]}'
FLAGS = 'KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/containerd/containerd.sock --v=2"\n'
FLANNEL_AT = "/etc/cni/net.d/10-flannel.conflist"
KUBEADM = {FLANNEL_AT: FLANNEL, "/var/lib/kubelet/kubeadm-flags.env": FLAGS}
Tree = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NodeHost:
    """A host's root folder, and mooring-node run on it."""

    root: Path

    def run(self, command: str, *flags: str) -> tuple[int, str]:
        """Run mooring-node; return its exit status and what it wrote to either output."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            status = main([*command.split(), "--root", str(self.root), "--node-name", "n1", *flags])
        return status, said.getvalue()

    def wheelhouse(self, name: str) -> Path:
        """Return a wheelhouse whose release is built already, so that no environment has to be made."""
        folder = self.root.parent / name
        folder.mkdir()
        (folder / f"mooring-{version('mooring')}-py3-none-any.whl").write_text(name)
        release = self.root / "opt/mooring/versions" / venv.release_of(folder)
        (release / "bin").mkdir(parents=True)
        (release / "complete").write_text(f"{version('mooring')}\n")
        return folder

    def text(self, path: str) -> str:
        return (self.root / path.lstrip("/")).read_bytes().decode()

    def write(self, path: str, text: str) -> None:
        there = self.root / path.lstrip("/")
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_text(text)

    def tree(self) -> Tree:
        """Return every file's text, link's target and folder of the host, but for its releases."""
        return {
            str(path.relative_to(self.root)): _shown(path)
            for path in sorted(self.root.rglob("*"))
            if "opt/mooring/versions" not in str(path)
        }


def _shown(path: Path) -> str:
    if path.is_symlink():
        return f"-> {path.readlink()}"
    return "folder" if path.is_dir() else f"{oct(path.stat().st_mode)} {path.read_text()}"


@pytest.fixture
def host_of(tmp_path: Path) -> Callable[..., NodeHost]:
    """Make a host that has these files."""

    def make(files: Mapping[str, str]) -> NodeHost:
        host = NodeHost(tmp_path / "host")
        for path, text in {"/opt/mooring/versions/.keep": "", "/var/lib/.keep": "", **files}.items():
            host.write(path, text)
        return host

    return make


@pytest.fixture
def kubeadm(host_of: Callable[..., NodeHost]) -> NodeHost:
    return host_of(KUBEADM)
