"""Kill mooring-node before each change that it makes to a host's files, go on by other runs, and compare what is then.

    python kill_loop.py SETTING.json

SETTING has ``template`` (a host's root folder) and ``scratch`` (an empty folder). ``killed`` has the arguments of the
run that is killed, ``after`` those of the runs that follow. ``wanted`` is a root folder that must be the result,
``part`` which of the changes (tests/support/seeds.py). Each try is a forked child on a copy of the template. Prints one
JSON object: how many changes a run makes and its exit status, before which it was killed, what differs.
"""

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from cli.node.__main__ import main
from tests.cli.node.conftest import NodeHost
from tests.support.seeds import Part

_CHANGES = (
    "os.rename",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "os.symlink",
    "os.chmod",
    "os.chown",
    "shutil.rmtree",
    "open",
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
KILLED = -signal.SIGKILL


def kill_at(number: int, root: Path, told: int) -> None:
    """Report each change that this process is about to make below ``root``; kill it before the one with this number."""
    changes = count(1)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event not in _CHANGES or (event == "open" and not int(str(arguments[2])) & _WRITING):
            return
        if str(root) not in f"{arguments[0]} {arguments[1:2]}" and event != "os.chmod":
            return
        os.write(told, f"{event}\n".encode())
        if next(changes) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def in_child(root: Path, arguments: Sequence[str], number: int = 0) -> tuple[int, list[str]]:
    """Run mooring-node in a child; return its status (negative: the signal) and the changes that it began to make."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        kill_at(number, root, writing)
        os._exit(main([arguments[0], "--root", str(root), "--node-name", "n1", *arguments[1:]]))
    os.close(writing)
    with open(reading) as told:  # noqa: PTH123 - a descriptor
        changes = told.read().split()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), changes


def differing(root: Path, wanted: Mapping[str, str]) -> list[str]:
    """Return the paths that differ in anything but a time."""
    tree = NodeHost(root).tree()
    return sorted(path for path in {*tree, *wanted} if _timeless(tree.get(path)) != _timeless(wanted.get(path)))


def _timeless(text: str | None) -> str | None:
    return None if text is None else _TIME.sub("", text)


def loop(setting: Mapping[str, Any], killed: Sequence[str], after: Sequence[Sequence[str]]) -> dict[str, object]:
    wanted, wrong = NodeHost(Path(setting["wanted"])).tree(), list[object]()
    root = Path(setting["scratch"]) / "host"
    shutil.copytree(setting["template"], root, symlinks=True)
    last, changes = in_child(root, killed)
    shutil.rmtree(root)
    before = Part(**setting["part"]).of_each_kind([(kind, number) for number, kind in enumerate(changes, 1)])
    for kind, number in before:
        shutil.copytree(setting["template"], root, symlinks=True)
        status, made = in_child(root, killed, number)
        statuses = [in_child(root, arguments)[0] for arguments in after]
        met = (status, made) == (KILLED, changes[:number])
        if not met or any(statuses) or differing(root, wanted):
            wrong.append([number, kind, status, statuses, differing(root, wanted)])
        shutil.rmtree(root)
    return {"changes": len(changes), "last": last, "before": before, "wrong": wrong}


if __name__ == "__main__":
    read = json.loads(Path(sys.argv[1]).read_text())
    print(json.dumps(loop(read, read["killed"], read["after"])))
