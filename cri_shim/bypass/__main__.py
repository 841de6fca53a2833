"""mooring-shim-bypass: connect the kubelet to the runtime while the CRI shim has failed."""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Event

from cri_shim.bypass.watch import Paths, Watch
from mooring.program.version_flag import add_version_flag

_SCHEME = "unix://"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status; it has only flags, which the installer writes."""
    options = _parser().parse_args(arguments)
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    paths = Paths(options.listen, options.runtime, options.run)
    flags = ["--runtime", f"{_SCHEME}{options.runtime}", "--run", str(options.run), *options.check_flags]
    Watch(paths, flags, never_bypass=options.never).run(stop)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mooring-shim-bypass", description=__doc__)
    add_version_flag(parser)
    parser.add_argument("--listen", type=_socket, required=True, metavar="L", help="the shim's socket, unix:///…")
    parser.add_argument("--runtime", type=_socket, required=True, metavar="R", help="the runtime's socket, unix:///…")
    run = Path("/run/mooring")
    parser.add_argument("--run", type=Path, default=run, metavar="R", help=f"folder of the record (default {run})")
    parser.add_argument("--never", action="store_true", help="never bypass the shim: no pod starts without it")
    parser.add_argument(
        "check_flags", nargs="*", metavar="-- FLAGS", help="flags of its device check, `python -m cri_shim.devices`"
    )
    return parser


def _socket(address: str) -> Path:
    path = Path(address.removeprefix(_SCHEME))
    if not address.startswith(_SCHEME) or not path.is_absolute():
        raise argparse.ArgumentTypeError(
            f"address {address!r} is not a unix socket such as 'unix:///run/mooring/cri.sock'"
        )
    return path


if __name__ == "__main__":
    sys.exit(main())
