"""kubectl-mooring, which kubectl finds as `kubectl mooring`; also `python -m cli`."""

import asyncio
import gc
import io
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from cli.plugin.arguments import PROGRAM, Arguments, parse
from cli.plugin.commands import Invocation, read_uses, run, with_notes
from cli.plugin.progress import Progress
from cli.plugin.reading import Reader
from cli.plugin.reports.changes import ItemChanges, RowChanges
from cli.plugin.reports.status import failing_checks
from cli.plugin.reports.tables import Answer, draw, printable
from cli.plugin.reports.yaml_document import dump
from cli.plugin.watching import WatchingReader, follow
from mooring.kube.access import Access, AccessError, context_namespace, load_access
from mooring.kube.client import Client
from mooring.kube.failures import KubeError
from mooring.program import log

# Most of the work is two lists; each connection starts with a handshake of some milliseconds.
_CONNECTIONS = 4
# Seconds between two looks of `status --wait`: as often as a leader renews its Lease.
_REPEAT_S = 2.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status: 0, 1 failure or findings, 2 usage, 130 interrupted."""
    arguments = parse(sys.argv[1:] if argv is None else argv)
    # numpy's BLAS starts a thread a core for matrices, which this program does not use.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names are ASCII, messages may be anything: what the terminal cannot show is escaped.
        sys.stdout.reconfigure(errors="backslashreplace")
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
    # No other command needs the scheduler's reading of pods.
    from cli.plugin.reports.lint.report import report

    return report([(file, _text(file)) for file in arguments.files], arguments.scheduler)


def _text(file: str) -> str:
    """Read a file, or standard input; raise RuntimeError with the message for a person.

    A byte that is not UTF-8 becomes a surrogate, which YAML does not allow.
    """
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except FileNotFoundError:
        raise RuntimeError(f"file {file!r} does not exist") from None
    except IsADirectoryError:
        raise RuntimeError(f"file {file!r} is a directory: name the files in it") from None
    except OSError as unreadable:
        raise RuntimeError(f"file {file!r} cannot be read: {unreadable.strerror}") from unreadable
    return content.decode("utf-8", errors="surrogateescape")


def _ask(arguments: Arguments) -> Answer:
    """Run the command against the API server; raise RuntimeError with the message for a person."""
    kubeconfig, context = arguments.kubeconfig or None, arguments.context or None
    try:
        access = load_access(kubeconfig, context)
        namespace = arguments.namespace or context_namespace(kubeconfig, context)
        begin = _way(arguments)
        symbols = sys.stdout.isatty() and sys.stdout.encoding.lower() == "utf-8"
        return asyncio.run(begin(access, Invocation(arguments, namespace, time.time(), access.server, symbols)))
    except (AccessError, KubeError) as failed:
        raise RuntimeError(str(failed)) from failed


async def _run(access: Access, invocation: Invocation) -> Answer:
    progress = Progress(sys.stderr, time.monotonic)
    try:
        async with Client(access, _CONNECTIONS, invocation.arguments.request_timeout) as client:
            return await run(Reader(client, progress.tell), invocation)
    finally:
        progress.end()


async def _wait(access: Access, invocation: Invocation) -> Answer:
    """Repeat the checks until all is well, or the time is over; what is not well yet is shown when it changes."""
    timeout_s = invocation.arguments.timeout
    until, last = time.monotonic() + timeout_s, ""
    async with Client(access, _CONNECTIONS, invocation.arguments.request_timeout) as client:
        while True:
            answer = await run(Reader(client), replace(invocation, now=time.time()))
            left = until - time.monotonic()
            if answer.status == 0:
                return answer
            if left <= 0:
                return replace(answer, notes=(*answer.notes, f"not all is well after {timeout_s:g} s"))
            if (failing := ", ".join(failing_checks(answer))) != last:
                _tell([f"waiting for: {failing}"])
                last = failing
            await asyncio.sleep(min(left, _REPEAT_S))


async def _watch(access: Access, invocation: Invocation) -> Answer:
    """Show changes until the command is interrupted, or its right to list is withdrawn."""
    gc.enable()
    log.set_up(PROGRAM, logging.WARNING)
    async with Client(access, _CONNECTIONS, invocation.arguments.request_timeout) as client:
        await follow(WatchingReader(client), invocation, _shower(invocation.arguments))
    raise AssertionError("a watch ends by an exception")


async def _edit_drain(access: Access, invocation: Invocation) -> Answer:
    """Write a node's drain annotation."""
    from cli.plugin.edit_drain import edit_drain

    async with Client(access, _CONNECTIONS, invocation.arguments.request_timeout) as client:
        reader = Reader(client)
        return with_notes(await edit_drain(client, reader, invocation.arguments), reader)


async def _connectivity(access: Access, invocation: Invocation) -> Answer:
    """Start pods that measure."""
    from cli.plugin.connectivity.connectivity_test import ConnectivityTest
    from cli.plugin.connectivity.plan import PodOptions, make_plan

    arguments = invocation.arguments
    async with Client(access, _CONNECTIONS, arguments.request_timeout) as client:
        found = await read_uses(Reader(client))
        plan = make_plan(found, arguments.nodes, arguments.networks, across=arguments.across)
        options = PodOptions(arguments.image, arguments.seconds, arguments.scheduler[0])
        test = ConnectivityTest(client, invocation.namespace, options, arguments.start, lambda told: _tell([told]))
        return await test.run(plan, keep=arguments.keep)


def _way(arguments: Arguments) -> Callable[[Access, Invocation], Coroutine[None, None, Answer]]:
    """Return what runs the command: once, or again and again."""
    if arguments.command == "connectivity":
        return _connectivity
    if arguments.command in ("drain", "undrain"):
        return _edit_drain
    return _watch if arguments.watch else _wait if arguments.wait else _run


def _shower(arguments: Arguments) -> Callable[[Answer], None]:
    """Return what prints the changes of an answer, and the notes that were not in the one before."""
    rows, items = RowChanges(coloured=_is_coloured(arguments.colour)), ItemChanges()
    told: list[str] = []

    def show(answer: Answer) -> None:
        if arguments.output == "json":
            lines = [json.dumps(one) for one in items.objects(answer)]
        elif arguments.output == "yaml":
            lines = [f"---\n{dump(msgspec.to_builtins(one))}".rstrip("\n") for one in items.objects(answer)]
        else:
            lines = rows.lines(answer)
        for line in lines:
            print(line)
        _tell([note for note in answer.notes if note not in told])
        told[:] = answer.notes
        sys.stdout.flush()

    return show


def _show(answer: Answer, arguments: Arguments) -> None:
    if arguments.output == "json":
        # With an indent json would be ten times as slow, and msgspec by itself would leave C1 controls unescaped.
        print(msgspec.json.format(json.dumps(answer.document)))
    elif arguments.output == "yaml":
        print(dump(msgspec.to_builtins(answer.document)), end="")
    else:
        print(draw(answer.tables, coloured=_is_coloured(arguments.colour)))
    _tell(answer.notes)
    sys.stdout.flush()


def _tell(notes: Sequence[str]) -> None:
    for note in notes:
        print(f"{PROGRAM}: {printable(note)}", file=sys.stderr)


def _is_coloured(choice: str) -> bool:
    if choice == "auto":
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return choice == "always"


if __name__ == "__main__":
    sys.exit(main())
