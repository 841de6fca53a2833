"""mooring-node on a host of its own, the lab, with a real systemd: commands, order, rollback and removal."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.node.runtime import RELEASE
from tests.support.built_release import ARCH, built_release

pytestmark = [pytest.mark.lab, pytest.mark.systemd, pytest.mark.wheels]

Lab = Callable[..., "subprocess.CompletedProcess[str]"]
SCENARIO = Path(__file__).parent / "inside/node_scenario.py"


@pytest.fixture
def releases(tmp_path: Path) -> Path:
    """Return a folder with the runtime of this commit, and with one whose shim ends at once."""
    (archive,) = built_release().glob(f"mooring-node-*-linux-{ARCH}.tar.gz")
    with tarfile.open(archive) as unpacked:
        unpacked.extractall(tmp_path, filter="data")
    (top,) = tmp_path.glob("mooring-*")
    first, second = tmp_path / "releases/first", tmp_path / "releases/second"
    first.parent.mkdir()
    top.rename(first)
    shutil.copytree(first, second, copy_function=os.link)
    shim = b"#!/bin/sh\nexit 1\n"
    document = json.loads((first / RELEASE).read_text())
    document["files"]["bin/mooring-cri-shim"] = hashlib.sha256(shim).hexdigest()
    for name, content in {"bin/mooring-cri-shim": shim, RELEASE: json.dumps(document).encode()}.items():
        (second / name).unlink()
        (second / name).write_bytes(content)
        (second / name).chmod(0o755)
    return first.parent


@pytest.mark.timeout(800)
@pytest.mark.slow
def test_mooring_node_installs_upgrades_and_removes_under_systemd(lab: Lab, releases: Path) -> None:
    """The kubelet connects to the shim; a release whose shim does not start is rolled back; removal leaves nothing.

    Mooring is a release's runtime, and starts neither the host's Python nor this repository's.
    The check's unit runs under its confinement. A bypass brings the kubelet to the runtime and back, with the shim. A
    shim that does not serve is bypassed without the kubelet's restart, until it serves again.
    """
    # The host's files: the lab has a /tmp of its own.
    mount = f"mkdir /mnt/releases && mount -t hostfs none /mnt/releases -o '{releases}'"
    done = lab(f"{mount}\nPYTHONPATH=. {sys.executable} {SCENARIO} /mnt/releases", timeout_s=560)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(next(line for line in done.stdout.splitlines() if line.startswith('{"seen"')))["seen"]
    assert seen["install"][0] == 0, seen["install"][1]
    assert seen["told"] == "unix:///run/mooring/cri.sock"
    assert seen["check"] == [0, "no findings: the installation is intact\n"]
    assert seen["limit"] == "infinity"
    assert seen["stopped"][0] == 1
    assert "mooring-cni.service: inactive" in seen["stopped"][1]
    assert seen["mended"] == ["", 0, "no findings: the installation is intact\n"]
    assert seen["timer"] == "active"
    assert seen["reported"] == ["", "shim"]
    assert seen["bypass_on"][0] == 0, seen["bypass_on"][1]
    status, said, reported = seen["bypassed"]
    assert (status, said.splitlines()[-1], reported) == (1, "1 finding", "bypass")
    assert seen["bypass_off"][0] == 0, seen["bypass_off"][1]
    assert seen["through"] == [0, "no findings: the installation is intact\n"]
    target, status, said = seen["failed"]
    assert (target, status) == ("/run/containerd/containerd.sock", 1)
    assert "shim-bypass.json: bypassed since" in said
    assert seen["again"] == ""
    assert seen["served"] == [True, 0, "no findings: the installation is intact\n"]
    assert seen["upgrade"][0] == 1
    assert "mooring-cri-shim.service ended with" in seen["upgrade"][1]
    assert seen["rolled_back"] == [0, "no findings: the installation is intact\n"]
    assert seen["remove"][0] == 0, seen["remove"][1]
    assert seen["left"] == []
    assert seen["units"] == ""
