"""mooring-node hardware-test on the command line: wrong usage is refused before anything is read."""

import pytest

from cli.node.__main__ import main


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--traffic"], "flag --traffic needs --vfs"),
        (["--vfs", "--rates", "fast"], "option rates: 'fast'"),
        (["--vfs", "--rates", "0,5"], "option rates: '0,5'"),
        (["--serve", "--vfs"], "flag --serve goes without --vfs and --peer"),
        (["--vfs", "--peer", "10.0.0.5:4000"], "flags --peer and --token go together"),
        (["--vfs", "--make-vfs", "4"], "flag --make-vfs needs --vfs and --pf"),
        (["--vfs", "--seconds", "0"], "seconds is not above 0"),
        (["--seconds", "long"], "flag --seconds"),
    ],
)
@pytest.mark.root
def test_wrong_usage_ends_with_status_2(flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the flag."""
    assert main(["hardware-test", *flags]) == 2
    assert said in capsys.readouterr().err


def test_help_lists_the_options_of_the_test_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Not those of an installation."""
    with pytest.raises(SystemExit) as ended:
        main(["hardware-test", "--help"])
    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert "--traffic" in said
    assert "--wheelhouse" not in said
