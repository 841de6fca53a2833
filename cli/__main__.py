"""kubectl-mooring, which kubectl finds as `kubectl mooring`; also `python -m cli`.

What needs a server or a file is imported when it is needed: `--help`, `version --client` and completion are quick.
"""

import gc
import io
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cli.plugin.arguments import Arguments, parse

if TYPE_CHECKING:
    from cli.plugin.reports.tables import Answer


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status: 0, 1 for a failure or findings, 130 if interrupted."""
    arguments = parse(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names are ASCII, messages may be anything: what the terminal cannot show is escaped.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return _run(arguments)
    except BrokenPipeError:
        # The reader has closed the pipe; the interpreter flushes once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        # The status that a shell reports for a program ended by SIGINT.
        return 130


def complete(argv: Sequence[str] | None = None) -> int:
    """Run `kubectl_complete-mooring`: print what the last word of a command line may be."""
    from cli.plugin.command_line.completion import candidates, lines, read_flags
    from cli.plugin.command_line.flags import make_parsers

    words, parsers = list(sys.argv[1:] if argv is None else argv) or [""], make_parsers()
    found, names = candidates(parsers, words), list[str]()
    if found.kind:
        from cli.plugin.completing import names_of

        names = names_of(found.kind, read_flags(parsers, words))
    print("\n".join(lines(found, names, words[-1])))
    return 0


def _run(arguments: Arguments) -> int:
    """Run what needs no server and no library; then the others."""
    if arguments.command == "completion":
        from cli.plugin.command_line.scripts import SCRIPTS

        print(SCRIPTS[arguments.shell], end="")
        return 0
    if arguments.command == "version" and arguments.client and arguments.output.format in ("table", "wide"):
        from importlib.metadata import version

        print(f"Client Version: {version('mooring')}")
        return 0
    # numpy's BLAS starts a thread a core for matrices, which this program does not use.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # A command keeps all that it reads, then ends: garbage collection would take a tenth of its time.
    gc.disable()
    try:
        return _answer_and_show(arguments)
    finally:
        gc.enable()


def _answer_and_show(arguments: Arguments) -> int:
    from cli.plugin.output.errors import line_of
    from cli.plugin.output.jsonpath import Template
    from cli.plugin.output.printer import print_notes, show
    from mooring.kube.access import AccessError
    from mooring.kube.failures import KubeError

    coloured = _is_coloured(arguments.output.colour)
    if arguments.command == "report" and arguments.output.format == "html" and sys.stdout.isatty():
        print_notes(["error: report: the page is for a browser: kubectl mooring report > cluster.html"])
        return 1
    try:
        if arguments.output.format == "jsonpath":
            # What is wrong with it is reported before anything is read.
            Template(arguments.output.template)
        answer = _answer(arguments, coloured=coloured)
        show(answer, arguments.output, coloured=coloured, width=_width())
    except BrokenPipeError:
        raise
    except (AccessError, KubeError, OSError, RuntimeError, ValueError) as error:
        print_notes(line_of(error).split("\n"))
        return 1
    return answer.status


def _answer(arguments: Arguments, *, coloured: bool) -> "Answer":
    if arguments.command == "lint":
        # No other command needs the scheduler's reading of pods.
        from cli.plugin.manifest_files import read_text
        from cli.plugin.reports.lint.report import report

        return report([(file, read_text(file)) for file in arguments.files], arguments.scheduler)
    if arguments.command == "version" and arguments.client:
        from importlib.metadata import version

        from cli.plugin.reports import versions

        return versions.report(version("mooring"))
    from cli.plugin.session import Terminal, ask

    symbols = sys.stdout.isatty() and sys.stdout.encoding.lower() == "utf-8"
    return ask(arguments, Terminal(coloured, symbols, sys.stderr, time.time))


def _width() -> int:
    if not sys.stdout.isatty():
        return 0
    import shutil

    return shutil.get_terminal_size().columns


def _is_coloured(choice: str) -> bool:
    if choice == "auto":
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return choice == "always"


if __name__ == "__main__":
    sys.exit(main())
