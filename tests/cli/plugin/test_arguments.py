"""The command line of `kubectl mooring`: flags before and after the command, and what is wrong."""

import re

import pytest

from cli.plugin.arguments import Arguments, parse


def test_without_a_command_all_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, with the status of wrong usage."""
    with pytest.raises(SystemExit) as ended:
        parse([])
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert re.search(r"^ +explain +why this node and these VFs", said.err, re.MULTILINE)


@pytest.mark.parametrize(
    ("argv", "command"),
    [(["nodes", "n1"], "nodes"), (["lint", "pod.yaml", "-R"], "lint"), (["explain", "a", "--why"], "explain")],
)
def test_a_flag_that_a_command_does_not_know_shows_the_usage_of_that_command(
    argv: list[str], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """That usage has the flags that it does know."""
    with pytest.raises(SystemExit) as ended:
        parse(argv)
    assert ended.value.code == 2
    usage, _, fault = capsys.readouterr().err.strip().rpartition("\n")
    assert usage.startswith(f"usage: kubectl mooring {command} [-h] [-o ")
    assert fault.startswith(f"kubectl mooring {command}: error: unrecognized arguments: ")


def test_lint_without_a_file_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing judged would look like nothing found."""
    with pytest.raises(SystemExit) as ended:
        parse(["lint", "--scheduler", "default-scheduler"])
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith("kubectl mooring lint: error: no FILE is named, and none by -f\n")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("groups", Arguments("groups")),
        ("--context lab -n train groups", Arguments("groups", context="lab", namespace="train")),
        ("groups --context lab -n train", Arguments("groups", context="lab", namespace="train")),
        ("-n train groups -n other", Arguments("groups", namespace="other")),
        ("-A -o json pods", Arguments("pods", output="json", all_namespaces=True)),
        ("--kubeconfig f --request-timeout 5 nodes", Arguments("nodes", kubeconfig="f", request_timeout=5.0)),
        (
            "-n train connectivity test --image i",
            Arguments("connectivity", namespace="train", image="i"),
        ),
    ],
)
def test_flags_of_kubectl_may_come_before_the_command(line: str, expected: Arguments) -> None:
    """As of `kubectl get`; of two, the one after the command counts."""
    assert parse(line.split()) == expected
