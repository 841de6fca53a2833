"""kubectl-mooring, which kubectl finds as `kubectl mooring`; also `python -m cli`."""

import asyncio
import gc
import io
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import yaml

from cli.plugin.arguments import PROGRAM, Arguments, parse
from cli.plugin.commands import Invocation, run
from cli.plugin.progress import Progress
from cli.plugin.reading import Reader
from cli.plugin.reports.tables import Answer, draw, printable
from mooring.kube.access import Access, AccessError, context_namespace, load_access
from mooring.kube.client import Client
from mooring.kube.failures import KubeError

# libyaml's dumper, if PyYAML was built with it, is five times as fast.
_YAML = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
# Most of the work is two lists; each connection starts with a handshake of some milliseconds.
_CONNECTIONS = 4


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status: 0, 1 failure or findings, 2 usage, 130 interrupted."""
    arguments = parse(sys.argv[1:] if argv is None else argv)
    # numpy's BLAS starts a thread a core for matrices, which this program does not use.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # A command keeps all that it reads, then ends: garbage collection would take a tenth of its time.
    gc.disable()
    try:
        answer = _lint(arguments) if arguments.command == "lint" else _ask(arguments)
        _show(answer, arguments)
    except BrokenPipeError:
        # The reader has closed the pipe; the interpreter flushes once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        # The status that a shell reports for a program ended by SIGINT.
        return 130
    except (OSError, RuntimeError) as failed:
        print(f"{PROGRAM}: {printable(str(failed))}", file=sys.stderr)
        return 1
    finally:
        gc.enable()
    return answer.status


def _lint(arguments: Arguments) -> Answer:
    # The scheduler's reading of pods uses numpy, whose import takes as long as all else here together.
    from cli.plugin.reports.lint import report

    return report([(file, _text(file)) for file in arguments.files], arguments.scheduler)


def _text(file: str) -> str:
    """Read a file, or standard input; a byte that is not UTF-8 becomes a surrogate, which YAML does not allow."""
    content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    return content.decode("utf-8", errors="surrogateescape")


def _ask(arguments: Arguments) -> Answer:
    """Run the command against the API server; raise RuntimeError with the message for a person."""
    kubeconfig, context = arguments.kubeconfig or None, arguments.context or None
    try:
        access = load_access(kubeconfig, context)
        namespace = arguments.namespace or context_namespace(kubeconfig, context)
        return asyncio.run(_run(access, Invocation(arguments, namespace, time.time())))
    except (AccessError, KubeError) as failed:
        raise RuntimeError(str(failed)) from failed


async def _run(access: Access, invocation: Invocation) -> Answer:
    progress = Progress(sys.stderr, time.monotonic)
    try:
        async with Client(access, _CONNECTIONS, invocation.arguments.request_timeout) as client:
            return await run(Reader(client, progress.tell), invocation)
    finally:
        progress.end()


def _show(answer: Answer, arguments: Arguments) -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names are ASCII, messages may be anything: what the terminal cannot show is escaped.
        sys.stdout.reconfigure(errors="backslashreplace")
    if arguments.output == "json":
        # With an indent json would be ten times as slow, and msgspec by itself would leave C1 controls unescaped.
        print(msgspec.json.format(json.dumps(answer.document)))
    elif arguments.output == "yaml":
        print(yaml.dump(msgspec.to_builtins(answer.document), Dumper=_YAML, sort_keys=False), end="")
    else:
        print(draw(answer.tables, coloured=_is_coloured(arguments.colour)))
    for note in answer.notes:
        print(f"{PROGRAM}: {printable(note)}", file=sys.stderr)
    sys.stdout.flush()


def _is_coloured(choice: str) -> bool:
    if choice == "auto":
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return choice == "always"


if __name__ == "__main__":
    sys.exit(main())
