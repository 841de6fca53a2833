"""The flags of `mooring-node install` that a fleet's nodes are installed with: one text for all nodes."""

import shlex
from argparse import ArgumentError, ArgumentParser
from collections.abc import Sequence

from cli.node.errors import NodeError
from cli.node.plan.steps import HOME

# Others name a release or a root folder, or change nothing: the installer's pod chooses them.
NAMES = (
    "advertiser",
    "await_init",
    "failed_shim",
    "folder",
    "kubeconfig",
    "kubelet_config",
    "network",
    "plugin",
    "vf_names",
    "without_guard",
)
_SWITCHES = ("await_init", "without_guard")


def read_flags(text: str) -> Sequence[str]:
    """Split the text as a shell does; raise NodeError if it has anything but flags that describe a node."""
    try:
        words = shlex.split(text)
        unknown = _parser().parse_known_args(words)[1]
    except (ValueError, ArgumentError) as wrong:
        raise NodeError(f"install flags {text!r} cannot be read: {wrong}") from wrong
    if unknown:
        allowed = ", ".join(map(_flag, NAMES))
        raise NodeError(f"install flags {text!r}: {unknown[0]!r} is not one of {allowed}")
    return words


def folder_of(flags: Sequence[str]) -> str:
    """Return the folder of the programs that the flags name."""
    return str(_parser().parse_known_args(flags)[0].folder or HOME)


def _parser() -> ArgumentParser:
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in NAMES:
        if name in _SWITCHES:
            parser.add_argument(_flag(name), nargs="?")
        else:
            parser.add_argument(_flag(name))
    return parser


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
