"""The flag ``--version`` of each program; needs no packages, so that `mooring-shim-bypass` runs if they are broken."""

import argparse
from typing import NoReturn


class _Version(argparse.Action):
    """Prints the program's name and version; argparse's own action would read the version at every start."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        # Imported here, because the import takes as long as the rest of the start.
        from importlib.metadata import version

        print(parser.prog, version("mooring"))
        parser.exit()


def add_version_flag(parser: argparse.ArgumentParser) -> None:
    """Add ``--version``, which prints the version of the distribution `mooring`."""
    no_value = argparse.SUPPRESS
    parser.add_argument(
        "--version", action=_Version, nargs=0, dest=no_value, default=no_value, help="show the version and exit"
    )
