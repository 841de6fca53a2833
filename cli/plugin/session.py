"""Run a command against the API server: once, until all is well, or for each change."""

import asyncio
import gc
import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TextIO

from cli.plugin.arguments import Arguments
from cli.plugin.command_line.flags import PROGRAM
from cli.plugin.commands import read_uses, run, with_notes
from cli.plugin.invocation import Invocation
from cli.plugin.output.printer import print_notes, shower
from cli.plugin.output.progress import Progress
from cli.plugin.reading import Reader
from cli.plugin.reports.status import failing_checks
from cli.plugin.reports.tables import Answer
from cli.plugin.watching import WatchingReader, follow
from mooring.kube.access import Access, Impersonation, context_namespace, load_access
from mooring.kube.client import Client
from mooring.kube.failures import KubeError, NotFound, Refused
from mooring.program import log

# Most of the work is two lists; each connection starts with a handshake of some milliseconds.
_CONNECTIONS = 4
# Seconds between two looks of `status --wait`: as often as a leader renews its Lease.
_REPEAT_S = 2.0
# Seconds between two requests that show whether the API server answers, and the most that it may take.
_PROBE_S, _ANSWER_S = 5.0, 10.0


@dataclass(frozen=True, slots=True)
class Terminal:
    """What a person sees: whether in colours and symbols, and where progress is shown; ``now`` is the UNIX time."""

    coloured: bool
    symbols: bool
    progress: TextIO
    now: Callable[[], float]


def ask(arguments: Arguments, terminal: Terminal) -> Answer:
    """Run a command; raise AccessError, KubeError or RuntimeError with the message for a person."""
    if arguments.bundle:
        return _read_shared(arguments, terminal) if arguments.command == "assess" else _read_bundle(arguments, terminal)
    flags = arguments.cluster
    kubeconfig, context = flags.kubeconfig or None, flags.context or None
    acts_as = Impersonation(flags.as_user, flags.as_groups, flags.as_uid)
    access = load_access(kubeconfig, context, acts_as)
    namespace = arguments.selection.namespace or context_namespace(kubeconfig, context)
    own = version("mooring")
    invocation = Invocation(arguments, namespace, terminal.now(), access.server, terminal.symbols, own)
    return asyncio.run(_way(arguments)(access, invocation, terminal))


def _read_bundle(arguments: Arguments, terminal: Terminal) -> Answer:
    """Run a command on a support bundle, as it was on the cluster then; raise as `ask` does."""
    from cli.plugin.bundle.memory import limited_memory
    from cli.plugin.bundle.source import opened

    with limited_memory(arguments.bundle), opened(Path(arguments.bundle)) as source:
        then = source.manifest
        namespace = arguments.selection.namespace or then.namespace
        invocation = Invocation(arguments, namespace, then.taken_at, then.server, terminal.symbols, then.version)
        return asyncio.run(run(Reader(source), invocation))


def _read_shared(arguments: Arguments, terminal: Terminal) -> Answer:
    """Run `assess` on what it wrote itself; raise as `ask` does."""
    from cli.plugin.assess.run import run_shared

    progress = Progress(terminal.progress, time.monotonic)
    try:
        return asyncio.run(run_shared(Invocation(arguments, "", terminal.now()), progress.report))
    finally:
        progress.end()


_Way = Callable[[Access, Invocation, Terminal], Coroutine[None, None, Answer]]


def _way(arguments: Arguments) -> _Way:
    """Return what runs the command."""
    if arguments.command == "connectivity":
        return _connectivity
    if arguments.command in ("drain", "undrain"):
        return _edit_drain
    if arguments.command == "support-bundle":
        return _support_bundle
    if arguments.command == "assess":
        return _assess
    if arguments.command == "ui":
        return _ui
    return _watch if arguments.watch else _wait if arguments.wait else _run


def _client(access: Access, invocation: Invocation) -> Client:
    return Client(access, _CONNECTIONS, invocation.arguments.cluster.request_timeout)


@contextmanager
def _progress(terminal: Terminal) -> Iterator[Callable[[str, int], None]]:
    """Show what is being read until the command has read it."""
    progress = Progress(terminal.progress, time.monotonic)
    try:
        yield progress.report
    finally:
        progress.end()


async def _run(access: Access, invocation: Invocation, terminal: Terminal) -> Answer:
    with _progress(terminal) as report:
        async with _client(access, invocation) as client:
            return await run(Reader(client, report), invocation)


async def _wait(access: Access, invocation: Invocation, terminal: Terminal) -> Answer:
    """Repeat the checks until all is well, or the time is over; show which checks fail when that changes."""
    timeout_s = invocation.arguments.timeout
    until, last = time.monotonic() + timeout_s, ""
    async with _client(access, invocation) as client:
        while True:
            answer = await run(Reader(client), replace(invocation, now=terminal.now()))
            left = until - time.monotonic()
            if answer.status == 0:
                return answer
            if left <= 0:
                return replace(answer, errors=(f"error: timed out: not all is well after {timeout_s:g} s",))
            if (failing := ", ".join(failing_checks(answer))) != last:
                print_notes([f"waiting for: {failing}"])
                last = failing
            await asyncio.sleep(min(left, _REPEAT_S))


async def _watch(access: Access, invocation: Invocation, terminal: Terminal) -> Answer:
    """Show changes until the command is interrupted, or its right to list is withdrawn."""
    gc.enable()
    log.set_up(PROGRAM, logging.WARNING)
    async with _client(access, invocation) as client:
        show = shower(invocation.arguments.output, coloured=terminal.coloured)
        await follow(WatchingReader(client), invocation, show, terminal.now)
    raise AssertionError("a watch ends by an exception")


async def _ui(access: Access, invocation: Invocation, terminal: Terminal) -> Answer:
    """Serve the page until the command is interrupted, or its right to list is withdrawn."""
    from cli.plugin.page.server import PageServer

    log.set_up(PROGRAM, logging.WARNING)
    server = PageServer()

    def publish(answer: Answer) -> None:
        server.publish(answer)
        if not gc.isenabled():
            # What was read first stays: to look through millions of objects again and again takes seconds.
            gc.freeze()
            gc.enable()

    async with _client(access, invocation) as client, server.serving(invocation.arguments.port):
        print(f"open {server.address}", flush=True)
        print_notes(["Ctrl-C ends it"])
        reader = WatchingReader(client, server.report_progress)
        probing = asyncio.create_task(_probe(client, server.api_answered, terminal.now))
        try:
            await follow(reader, invocation, publish, terminal.now)
        finally:
            probing.cancel()
    raise AssertionError("a watch ends by an exception")


async def _probe(client: Client, tell: Callable[[float, str], None], now: Callable[[], float]) -> None:
    """Report when the API server answered last, and why it does not answer: a watch waits in silence."""
    answered_at = now()
    while True:
        try:
            async with asyncio.timeout(_ANSWER_S):
                await client.request("GET", "/version")
            failure = ""
        except TimeoutError:
            failure = f"no answer within {_ANSWER_S:g} s"
        except KubeError as error:
            # A refusal is an answer.
            failure = "" if isinstance(error, Refused | NotFound) else str(error)
        answered_at = answered_at if failure else now()
        tell(answered_at, failure)
        await asyncio.sleep(_PROBE_S)


async def _edit_drain(access: Access, invocation: Invocation, _: Terminal) -> Answer:
    """Write a node's drain annotation."""
    from cli.plugin.edit_drain import edit_drain

    async with _client(access, invocation) as client:
        reader = Reader(client)
        return with_notes(await edit_drain(client, reader, invocation.arguments), reader)


async def _support_bundle(access: Access, invocation: Invocation, terminal: Terminal) -> Answer:
    """Write what the other commands read to an archive."""
    from cli.plugin.bundle.collect import write_bundle

    with _progress(terminal) as report:
        async with _client(access, invocation) as client:
            return await write_bundle(client, invocation, report)


async def _assess(access: Access, invocation: Invocation, terminal: Terminal) -> Answer:
    """Report on a cluster that may have nothing of Mooring."""
    from cli.plugin.assess.run import run as run_assess

    with _progress(terminal) as report:
        async with _client(access, invocation) as client:
            return await run_assess(client, invocation, report)


async def _connectivity(access: Access, invocation: Invocation, _: Terminal) -> Answer:
    """Start pods that measure."""
    from cli.plugin.connectivity.connectivity_test import ConnectivityTest
    from cli.plugin.connectivity.plan import PodOptions, make_plan

    arguments = invocation.arguments
    flags = arguments.connectivity
    async with _client(access, invocation) as client:
        found = await read_uses(Reader(client))
        plan = make_plan(found, flags.nodes, flags.networks, across=flags.across)
        options = PodOptions(flags.image, flags.seconds, arguments.scheduler[0])
        test = ConnectivityTest(client, invocation.namespace, options, flags.start, lambda told: print_notes([told]))
        return await test.run(plan, keep=flags.keep)
