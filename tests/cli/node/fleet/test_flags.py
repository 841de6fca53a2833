"""The flags with which a fleet's nodes are installed."""

import pytest

from cli.node.errors import NodeError
from cli.node.fleet.flags import NAMES, folder_of, read_flags
from cli.node.options import Options

WRONG = {
    "--network 'none": r"install flags \"--network 'none\" cannot be read: No closing quotation",
    "--network": r"install flags '--network' cannot be read: argument --network: expected one argument",
    "--root=/mnt": r"install flags '--root=/mnt': '--root=/mnt' is not one of --advertiser, --await-init, ",
    "--dry-run": r"'--dry-run' is not one of ",
    "--netw none": r"'--netw' is not one of ",
    "--help": r"'--help' is not one of ",
    "none": r"'none' is not one of ",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_flag_that_describes_a_node_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(NodeError, match=WRONG[text]):
        read_flags(text)


def test_flags_are_split_as_a_shell_does_and_are_those_of_the_installation() -> None:
    words = read_flags("--await-init --folder '/var/my programs' --network=none")
    assert words == ["--await-init", "--folder", "/var/my programs", "--network=none"]
    assert folder_of(words) == "/var/my programs"
    assert folder_of([]) == "/opt/mooring"
    assert set(NAMES) <= set(Options.__dataclass_fields__)
