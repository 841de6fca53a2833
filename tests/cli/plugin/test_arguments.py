"""The command line of `kubectl mooring` where it is wrong."""

import pytest

from cli.plugin.arguments import parse


def test_without_a_command_all_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, with the status of wrong usage."""
    with pytest.raises(SystemExit) as ended:
        parse([])
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "explain     why this node and these VFs" in said.err


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
