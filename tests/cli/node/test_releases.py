"""Releases that `mooring-node` builds from a wheelhouse, swaps at an upgrade and removes, on hosts below a folder."""

import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from cli.node.venv import release_of
from tests.cli import wheelhouse
from tests.cli.node.conftest import NodeHost


def _tiny_wheelhouse(folder: Path) -> Path:
    """Make a wheelhouse whose Mooring needs nothing and is empty, so that real environments are built quickly."""
    folder.mkdir()
    info = f"mooring-{version('mooring')}.dist-info"
    with zipfile.ZipFile(folder / f"mooring-{version('mooring')}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: mooring\nVersion: {version('mooring')}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
        wheel.comment = folder.name.encode()
    return folder


@pytest.mark.slow
def test_an_upgrade_swaps_one_link_and_keeps_the_release_before(kubeadm: NodeHost) -> None:
    """The third release removes the first, remove removes all; install and upgrade refuse each other's case."""
    before, releases = kubeadm.tree(), kubeadm.root / "opt/mooring/versions"
    wheels = [_tiny_wheelhouse(kubeadm.root.parent / name) for name in ("one", "two", "three")]
    names = [release_of(folder) for folder in wheels]
    assert kubeadm.run("upgrade", "--wheelhouse", str(wheels[0]))[0] == 1
    for command, folder in zip(("install", "upgrade", "upgrade"), wheels, strict=True):
        status, said = kubeadm.run(command, "--wheelhouse", str(folder))
        assert status == 0, said
    assert kubeadm.run("install", "--wheelhouse", str(wheels[0]))[0] == 1
    assert (kubeadm.root / "opt/mooring/current").readlink() == Path("versions") / names[2]
    assert {path.name for path in releases.glob("0*")} == set(names[1:])
    assert kubeadm.run("check")[0] == 0
    assert kubeadm.run("remove")[0] == 0
    assert list(releases.glob("0*")) == []
    assert kubeadm.tree() == before


def test_an_upgrade_reloads_a_shim_that_hands_over(kubeadm: NodeHost) -> None:
    """The unit that is there tells: that of an earlier release lets a person ask for a check, by SIGHUP."""
    unit = "/etc/systemd/system/mooring-cri-shim.service"
    wheels = [str(kubeadm.wheelhouse(name)) for name in ("one", "two", "three")]
    said = [kubeadm.run("install", "--wheelhouse", wheels[0])[1], kubeadm.run("upgrade", "--wheelhouse", wheels[1])[1]]
    now = "ExecReload=/opt/mooring/bin/mooring-cri-shim --take-over"
    assert now in kubeadm.text(unit)
    kubeadm.write(unit, kubeadm.text(unit).replace(now, "ExecReload=/bin/kill -HUP $MAINPID"))
    said.append(kubeadm.run("upgrade", "--wheelhouse", wheels[2])[1])
    words = [line.split()[-2] for each in said for line in each.splitlines() if line.endswith("cri-shim.service")]
    assert words == ["restart", "reload-or-restart", "restart"]


def test_a_wheelhouse_of_another_version_is_refused(kubeadm: NodeHost) -> None:
    """Units and forwarder are this program's: it installs its own version and no other."""
    folder = kubeadm.root.parent / "other"
    folder.mkdir()
    (folder / "mooring-9.9.9-py3-none-any.whl").write_text("")
    status, said = kubeadm.run("install", "--wheelhouse", str(folder))
    assert status == 1
    assert "has mooring 9.9.9" in said


@pytest.mark.slow
def test_programs_of_a_real_wheelhouse_run_where_they_are_installed(kubeadm: NodeHost) -> None:
    """The environment is built without a network; its scripts name the host's paths, and the programs start."""
    wheels = wheelhouse.make(kubeadm.root.parent / "wheels", ("advertiser", "cni", "cri-shim"))
    status, said = kubeadm.run("install", "--wheelhouse", str(wheels))
    assert status == 0, said
    assert kubeadm.run("check")[0] == 0
    home = kubeadm.root / "opt/mooring"
    assert (home / "bin/mooring-cni").read_text().startswith("#!/opt/mooring/versions/")
    for module in ("advertiser", "cni", "cri_shim", "cri_shim.bypass", "cli.node"):
        done = subprocess.run([home / "bin/python", "-I", "-m", module, "--help"], capture_output=True, check=True)
        assert b"usage: mooring-" in done.stdout
    assert kubeadm.run("remove")[0] == 0
    assert not any((home / "versions").glob("0*"))


def test_a_build_that_was_killed_is_not_a_release(kubeadm: NodeHost) -> None:
    """A folder without its last file is built again; where that fails, pip's message is printed."""
    wheels = kubeadm.wheelhouse("first")
    (release,) = (kubeadm.root / "opt/mooring/versions").glob("0*")
    (release / "complete").unlink()
    status, said = kubeadm.run("install", "--wheelhouse", str(wheels), "--python", sys.executable)
    assert status == 1
    assert "pip install" in said
    assert not release.exists()
