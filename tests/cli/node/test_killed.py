"""mooring-node killed before single changes that it makes to a host: what the next run makes of it."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.node.conftest import KUBEADM, NodeHost
from tests.support.seeds import Part

Loop = Callable[..., dict[str, Any]]
_LOOP = Path(__file__).with_name("kill_loop.py")


@pytest.fixture
def kill(tmp_path: Path, part: Part) -> Loop:
    """Kill a run on copies of a host at this run's part of its changes, and compare what the runs after it make of it.

    The part and what it met are printed, for the case that a test fails.
    """

    def run(template: Path, killed: Sequence[str], after: Sequence[Sequence[str]], wanted: Path) -> dict[str, Any]:
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        setting = {"template": str(template), "wanted": str(wanted), "scratch": str(scratch)}
        file = tmp_path / "setting.json"
        file.write_text(json.dumps({**setting, "killed": killed, "after": after, "part": part.document()}))
        command = [sys.executable, str(_LOOP), str(file)]
        environment = {"PYTHONPATH": str(_LOOP.parents[3]), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        said: dict[str, Any] = json.loads(done.stdout)
        print(f"--seed {part.seed}: killed before {said['before']} of {said['changes']} changes")
        return said

    return run


@pytest.fixture
def bare(host_of: Callable[..., NodeHost]) -> NodeHost:
    return host_of({**KUBEADM, "/etc/NetworkManager/NetworkManager.conf": ""})


def _copy(host: NodeHost, name: str) -> NodeHost:
    return NodeHost(Path(shutil.copytree(host.root, host.root.parent / name, symlinks=True)))


def _assert_all_went_well(said: dict[str, Any], least: int) -> None:
    assert said["last"] == 0
    assert said["changes"] >= least
    assert said["before"] != []
    assert said["wrong"] == []


@pytest.mark.slow
def test_an_install_that_was_killed_anywhere_is_finished_by_the_next(bare: NodeHost, kill: Loop) -> None:
    """The second run leaves exactly the host that an undisturbed one leaves, its journal included."""
    install = ["install", "--wheelhouse", str(bare.wheelhouse("first"))]
    wanted = _copy(bare, "wanted")
    assert wanted.run(*install)[0] == 0
    _assert_all_went_well(kill(bare.root, install, [install], wanted.root), least=60)


@pytest.mark.slow
def test_an_install_that_was_killed_anywhere_is_taken_back_by_undo(bare: NodeHost, kill: Loop) -> None:
    """Undo leaves nothing of it, not even an empty folder."""
    install = ["install", "--wheelhouse", str(bare.wheelhouse("first"))]
    _assert_all_went_well(kill(bare.root, install, [["undo"]], _copy(bare, "wanted").root), least=60)


@pytest.mark.slow
def test_a_removal_that_was_killed_anywhere_is_finished_by_the_next(bare: NodeHost, kill: Loop) -> None:
    """After the next removal the host is as it was before anything was installed."""
    wheelhouse = str(bare.wheelhouse("first"))
    wanted = _copy(bare, "wanted")
    assert bare.run("install", "--wheelhouse", wheelhouse)[0] == 0
    _assert_all_went_well(kill(bare.root, ["remove"], [["remove"]], wanted.root), least=20)


@pytest.mark.parametrize("word", ["on", "off"])
@pytest.mark.slow
def test_a_bypass_that_was_killed_anywhere_is_finished_by_the_next(bare: NodeHost, kill: Loop, word: str) -> None:
    """On and off each leave what an undisturbed run leaves."""
    assert bare.run("install", "--wheelhouse", str(bare.wheelhouse("first")))[0] == 0
    if word == "off":
        bare.run("bypass on")
    turn = ["bypass", word]
    wanted = _copy(bare, "wanted")
    assert wanted.run(*turn)[0] == 0
    _assert_all_went_well(kill(bare.root, turn, [turn], wanted.root), least=6)


@pytest.mark.slow
def test_an_upgrade_that_was_killed_anywhere_is_finished_or_taken_back(bare: NodeHost, kill: Loop) -> None:
    """Undo leaves the release of before as it was, the next upgrade the new one."""
    first, second = (str(bare.wheelhouse(name)) for name in ("first", "second"))
    assert bare.run("install", "--wheelhouse", first)[0] == 0
    before = _copy(bare, "before")
    bare.write("/etc/udev/rules.d/79-mooring-vfs.rules", "# of the release before\n")
    upgrade = ["upgrade", "--wheelhouse", second]
    wanted = _copy(bare, "wanted")
    assert wanted.run(*upgrade)[0] == 0
    _assert_all_went_well(kill(bare.root, upgrade, [upgrade], wanted.root), least=8)
    shutil.rmtree(bare.root.parent / "scratch")
    _assert_all_went_well(kill(before.root, upgrade, [["undo"]], before.root), least=4)
