"""Completion: what kubectl, and a shell, offers for the last word of a command line."""

import json
import os
import subprocess
import sys
from asyncio import to_thread
from pathlib import Path

import pytest

from cli.__main__ import complete, main
from mooring import names
from tests.cli.plugin.cluster import Served, bound, node, pf, pod


def words(capsys: pytest.CaptureFixture[str], *line: str) -> list[str]:
    """Return the words that are offered, and the directive."""
    assert complete(line) == 0
    return [text.partition("\t")[0] for text in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        (["gr"], ["groups", ":4"]),
        (["--colour", "a"], ["auto", "always", ":4"]),
        (["nodes", "--so"], ["--sort-by", ":4"]),
        (["nodes", "-o", "j"], ["json", "jsonpath=", ":4"]),
        (["-o", "js", "--colour=n"], ["--colour=never", ":4"]),
        (["completion", ""], ["bash", "zsh", "fish", ":4"]),
        (["connectivity", ""], ["test", ":4"]),
        (["lint", ""], [":0"]),
        (["nodes", "--kubeconfig", ""], [":0"]),
        (["top", "n"], [":4"]),
        (["explain", "--scheduler", "x", "g"], ["group/", ":4"]),
    ],
)
def test_words_and_flags_are_offered(line: list[str], offered: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The last line is cobra's directive: 4 is no file names, 0 file names where nothing is offered."""
    assert words(capsys, "--kubeconfig", "/nowhere", *line) == offered


def test_commands_have_their_descriptions(capsys: pytest.CaptureFixture[str]) -> None:
    """Shells show what stands after the tab."""
    complete(["top"])
    assert capsys.readouterr().out == "top\tthe bandwidth reserved, and the pods with most of it\n:4\n"


async def test_names_of_objects_are_read_from_the_cluster(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """Pods without VFs are left out."""
    for index in (1, 2):
        await served.add_node(node(f"n{index}", (pf(0),)))
    await served.add_pod(bound("a", "n1", (pf(0), 0, 0)))
    await served.add_pod(pod("b", "[{}]", annotations={names.GROUP: '{"name":"train","min":2}'}))
    await served.add_pod(pod("plain"))
    flags = ("--kubeconfig", str(served.kubeconfig))

    async def offered(*line: str) -> list[str]:
        return await to_thread(words, capsys, *flags, *line)

    assert await offered("nodes", "") == ["n1", "n2", ":4"]
    assert await offered("pods", "a", "") == ["a", "b", ":4"]
    assert await offered("groups", "t") == ["train", ":4"]
    assert await offered("explain", "group/") == ["group/train", ":4"]
    assert await offered("explain", "") == ["pod/", "group/", "job/", "a", "b", ":4"]
    assert await offered("explain", "a", "") == [":4"]
    assert await offered("pods", "-n", "kube-s") == ["kube-system", ":4"]
    contexts = [one["name"] for one in json.loads(served.kubeconfig.read_text())["contexts"]]
    assert await offered("pods", "--context", "") == [*contexts, ":4"]
    assert await offered("pods", "--context", "elsewhere", "") == [":4"]


def _command(folder: Path, name: str, code: str) -> None:
    script = folder / name
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c \'{code}\' "$@"\n')
    script.chmod(0o755)


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment with both commands on the PATH."""
    _command(folder, "kubectl-mooring", "import sys; from cli.__main__ import main; sys.exit(main())")
    _command(folder, "kubectl_complete-mooring", "import sys; from cli.__main__ import complete; sys.exit(complete())")
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(Path.cwd())}


@pytest.mark.recent_kubectl
def test_kubectl_completes_the_plugin(tmp_path: Path) -> None:
    """Its own completion calls the executable that stands beside the plugin."""
    argv = ["kubectl", "__complete", "mooring", "nodes", "--so"]
    done = subprocess.run(argv, env=_environment(tmp_path), capture_output=True, text=True, check=True)
    assert done.stdout == "--sort-by\torder of the rows\n:4\n"


def test_bash_completes_the_plugin_when_it_is_called_by_its_own_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script is that of `kubectl mooring completion bash`."""
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    program = (
        f'{script}\nCOMP_WORDS=(kubectl-mooring nodes -o j); COMP_CWORD=3; _kubectl_mooring; echo "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(
        ["bash", "-c", program], env=_environment(tmp_path), capture_output=True, text=True, check=True
    )
    assert done.stdout == "json jsonpath=\n"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each calls the executable that kubectl calls too."""
    assert main(["completion", shell]) == 0
    assert "kubectl_complete-mooring" in capsys.readouterr().out
