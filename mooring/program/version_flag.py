"""The flag ``--version`` of each program. It needs no package: `mooring-shim-bypass` runs where those are broken."""

import argparse
from typing import NoReturn


class _Version(argparse.Action):
    """Print the program's name and version: argparse's own action would read the version at each start."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        # Its import takes as long as all else of a start.
        from importlib.metadata import version

        print(parser.prog, version("mooring"))
        parser.exit()


def add_version_flag(parser: argparse.ArgumentParser) -> None:
    """Add ``--version``: each program has the version of the one distribution."""
    suppressed = argparse.SUPPRESS
    parser.add_argument(
        "--version", action=_Version, nargs=0, dest=suppressed, default=suppressed, help="show the version and exit"
    )
