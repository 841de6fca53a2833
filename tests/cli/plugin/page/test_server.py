"""`kubectl mooring ui`: who may read the report, that it follows the cluster, and that it ends."""

import asyncio
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest

from cli.plugin.page.server import PageServer
from cli.plugin.reports.tables import Answer
from tests.cli.plugin.cluster import Served, node, pf
from tests.cli.plugin.page.interface import Interface, interface
from tests.cli.plugin.test_watch import ended


@pytest.fixture
async def ui(served: Served) -> AsyncIterator[Interface]:
    await served.add_node(node("n1", (pf(0),)))
    async with interface(served) as found:
        yield found


async def test_only_the_page_with_its_secret_may_read(ui: Interface) -> None:
    """Another name of this machine, another page, no secret and another method are refused; nothing is stored."""
    right = {"Authorization": f"Bearer {ui.token}"}
    port = ui.url.port
    async with aiohttp.ClientSession() as browser:
        for path, headers, status in (
            ("/", {}, 200),
            ("/", {"Host": f"attacker.example:{port}"}, 403),
            ("/report", {}, 401),
            ("/report", {"Authorization": "Bearer x"}, 401),
            ("/report", right | {"Host": f"attacker.example:{port}"}, 403),
            ("/report", right | {"Origin": "http://attacker.example"}, 403),
            ("/report", right | {"Origin": "null"}, 403),
            ("/report", right | {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"}, 200),
            ("/changes", {}, 401),
            ("/other", right, 404),
        ):
            async with browser.get(ui.url.with_path(path), headers=headers) as answer:
                assert (path, headers, answer.status) == (path, headers, status)
                if status == 200:
                    assert answer.headers["Cache-Control"] == "no-store"
        async with browser.post(ui.url.with_path("/report"), headers=right, json={}) as answer:
            assert answer.status == 405
        async with browser.get(ui.url.with_path("/")) as answer:
            assert '<script type="application/json" id="report"></script>' in await answer.text()


async def test_the_report_follows_the_cluster(ui: Interface, served: Served) -> None:
    """A line comes for each change, soon after it; the report has it."""
    right = {"Authorization": f"Bearer {ui.token}"}
    async with (
        aiohttp.ClientSession(headers=right) as browser,
        browser.get(ui.url.with_path("/changes")) as changes,
        asyncio.timeout(60),
    ):
        await changes.content.readline()
        await served.add_node(node("n2", (pf(0),)))
        while True:
            async with browser.get(ui.url.with_path("/report")) as answer:
                report = json.loads(await answer.text())
            if [one["node"] for one in report["nodes"] if one["pfs"]] == ["n1", "n2"]:
                break
            await changes.content.readline()


def test_a_report_that_differs_only_in_its_time_is_no_news() -> None:
    """A leader renews its Lease all the time."""
    server = PageServer()

    def report(age: int, **more: object) -> Answer:
        checks = [{"check": "scheduler", "state": "ok", "text": f"it renewed its Lease {age} s ago"}]
        return Answer({"taken_at": str(age), "checks": checks, **more}, ())

    assert server.publish(report(1))
    assert not server.publish(report(2))
    assert server.publish(report(3, nodes=["n1"]))


async def test_a_port_that_is_taken_is_an_error(ui: Interface, served: Served) -> None:
    status, out, err = await ended(served, "ui", "--port", str(ui.url.port))
    assert (status, out) == (1, "")
    assert "address already in use" in err
