"""`-w`: what is printed when something changes, and how a watch ends."""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cli.plugin import watching as watching_module
from cli.plugin.arguments import parse
from cli.plugin.invocation import Invocation
from cli.plugin.reports.changes import Change, Changes, RowChanges
from cli.plugin.reports.tables import Answer, Table, cells
from tests.cli.plugin.cluster import Json, Served, bound, given, node, pf, pod
from tests.support.polling import LIMIT_S


def test_values_of_one_identity_are_told_apart_by_their_order() -> None:
    """A pod that waits is one row, and so is its first VF: the row is modified."""
    changes = Changes[str]()
    assert changes.until([("a", "waits"), ("b", "runs")]) == [("ADDED", "waits"), ("ADDED", "runs")]
    assert changes.until([("a", "vf 0"), ("a", "vf 1"), ("b", "runs")]) == [("MODIFIED", "vf 0"), ("ADDED", "vf 1")]
    assert changes.until([("a", "vf 1")]) == [
        Change("DELETED", "vf 1"),
        Change("DELETED", "runs"),
        Change("MODIFIED", "vf 1"),
    ]
    assert changes.until([("a", "vf 1")]) == []


def test_columns_stay_where_they_are_unless_a_wider_text_comes() -> None:
    """Lines of later changes are below those of earlier ones; nothing is printed where nothing changes."""
    changes = RowChanges(coloured=False)

    def lines(*rows: tuple[str, int]) -> list[str]:
        table = Table(("NAME", "VFS"), [cells(*row) for row in rows], identity=("NAME",))
        return changes.lines(Answer({}, (table,)))

    assert lines() == []
    assert lines(("a-long-name", 10)) == ["EVENT   NAME          VFS", "ADDED   a-long-name    10"]
    assert lines(("a-long-name", 10)) == []
    assert lines(("a-long-name", 9)) == ["MODIFIED   a-long-name     9"]
    assert lines(("b", 1)) == ["DELETED    a-long-name     9", "ADDED      b               1"]


@asynccontextmanager
async def watching(served: Served, *argv: str) -> AsyncIterator[Process]:
    """Run a command that watches, as a person's shell starts it, and end it as they do."""
    command = ("env", "--default-signal=INT", sys.executable, "-m", "cli", *argv)
    environment = {**os.environ, "KUBECONFIG": str(served.kubeconfig)}
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=PIPE, stderr=PIPE)
    async with asyncio.timeout(90):
        yield process
        process.send_signal(signal.SIGINT)
        assert await process.communicate() == (b"", b"")
    assert process.returncode == 130


async def ended(served: Served, *argv: str) -> tuple[int | None, str, str]:
    """Run a command that ends by itself, in a process of its own: a watch configures the log of its whole process."""
    environment = {**os.environ, "KUBECONFIG": str(served.kubeconfig)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cli", *argv, env=environment, stdout=PIPE, stderr=PIPE
    )
    async with asyncio.timeout(90):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def line(process: Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode()


async def test_each_change_is_a_line(served: Served) -> None:
    """A pod comes, is bound to two VFs, and goes."""
    await served.add_node(node("n1", (pf(0), pf(1))))
    await served.add_pod(bound("old", "n1", (pf(0), 0, 5000)))
    async with watching(served, "pods", "-w") as process:
        assert (await line(process)).split()[:3] == ["EVENT", "NAME", "STATE"]
        assert (await line(process)).split()[:7] == ["ADDED", "old", "Running", "n1", "pf0", "0", "rail0"]
        uid = await served.add_pod(pod("new", "[{},{}]"))
        assert (await line(process)).split()[:4] == ["ADDED", "new", "Pending", "-"]
        path = "/api/v1/namespaces/default/pods/new"
        assignment = {"mooring.dev/assignment": given(uid, "n1", (pf(0), 1, 0), (pf(1), 2, 0))}
        about = {"metadata": {"name": "new", "annotations": assignment}, "target": {"kind": "Node", "name": "n1"}}
        await served.post(f"{path}/binding", about)
        assert (await line(process)).split()[:6] == ["MODIFIED", "new", "Pending", "n1", "pf0", "1"]
        assert (await line(process)).split()[:6] == ["ADDED", "new", "Pending", "n1", "pf1", "2"]
        await served.client.request("DELETE", path, params={"gracePeriodSeconds": "0"})
        gone = [(await line(process)).split()[:2], (await line(process)).split()[:2]]
        assert gone == [["DELETED", "new"]] * 2


async def test_programs_get_an_object_a_line(served: Served) -> None:
    """`type` and `object` are those of `kubectl get -w --output-watch-events -o json`; nodes depend on pods too."""
    await served.add_node(node("n1", (pf(0),)))
    async with watching(served, "nodes", "-w", "-o", "json") as process:
        first: Json = json.loads(await line(process))
        assert (first["type"], first["object"]["pfs"][0]["vfs"]["used"]) == ("ADDED", 0)
        await served.add_pod(bound("a", "n1", (pf(0), 0, 5000)))
        second: Json = json.loads(await line(process))
        assert (second["type"], second["object"]["pfs"][0]["vfs"]["used"]) == ("MODIFIED", 1)


async def test_a_leader_that_dies_is_noticed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It renews its Lease no more: nothing changes but the time."""
    monkeypatch.setattr(watching_module, "_AGAIN_S", 3)
    await served.add_node(node("n1", (pf(0),)))
    await served.lead()
    clock, states = time.time(), asyncio.Queue[str]()

    def show(answer: Answer) -> None:
        found: Json = dict(answer.document)
        states.put_nowait(next(one["state"] for one in found["checks"] if one["check"] == "scheduler"))

    reader = watching_module.WatchingReader(served.client)
    invocation = Invocation(parse(["status"]), "default", clock)
    following = asyncio.create_task(watching_module.follow(reader, invocation, show, lambda: clock))
    assert await asyncio.wait_for(states.get(), LIMIT_S) == "ok"
    # The other first lists are changes, too.
    with contextlib.suppress(TimeoutError):
        while True:
            assert await asyncio.wait_for(states.get(), 1.5) == "ok"
    clock += 60
    assert await asyncio.wait_for(states.get(), LIMIT_S) == "error"
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following


async def test_what_cannot_be_watched_ends_the_command_with_a_sentence(guarded: Served) -> None:
    """The account may not list nodes: no watch repeats that for ever."""
    await guarded.restrict("pods")
    status, out, err = await ended(guarded, "nodes", "-w")
    assert (status, out) == (1, "")
    assert re.match(r"Error from server \(Forbidden\): nodes is forbidden: User .+ cannot list resource", err)


async def test_a_right_to_list_without_the_right_to_watch_is_named(guarded: Served) -> None:
    """Rights of earlier versions had no `watch`."""
    await guarded.restrict("nodes", "pods", verbs=("list",))
    status, out, err = await ended(guarded, "nodes", "-w")
    assert (status, out) == (1, "")
    assert re.match(r"Error from server \(Forbidden\): nodes is forbidden: User .+ cannot watch resource", err)


async def test_one_group_is_not_watched(served: Served) -> None:
    """Its answer has several tables."""
    with pytest.raises(SystemExit) as usage:
        await served.run("groups", "train", "-w")
    assert usage.value.code == 1
