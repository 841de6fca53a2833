"""`kubectl mooring ui`: who may read the report, that it follows the cluster, and that it ends."""

import asyncio
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
from yarl import URL

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
            ("/changes", {}, 401),
            ("/changes", {"Authorization": "Bearer x"}, 401),
            ("/changes", right | {"Host": f"attacker.example:{port}"}, 403),
            ("/changes", right | {"Origin": "http://attacker.example"}, 403),
            ("/changes", right | {"Origin": "null"}, 403),
            ("/changes", right | {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"}, 200),
            ("/other", right, 404),
        ):
            async with browser.get(ui.url.with_path(path), headers=headers) as answer:
                assert (path, headers, answer.status) == (path, headers, status)
                if status == 200:
                    assert answer.headers["Cache-Control"] == "no-store"
        async with browser.post(ui.url.with_path("/changes"), headers=right, json={}) as answer:
            assert answer.status == 405
        async with browser.get(ui.url.with_path("/")) as answer:
            assert '<script type="application/json" id="report"></script>' in await answer.text()


async def test_the_report_follows_the_cluster(ui: Interface, served: Served) -> None:
    """The first line has the report, and a later one the new node alone."""
    right = {"Authorization": f"Bearer {ui.token}"}
    async with (
        aiohttp.ClientSession(headers=right, read_bufsize=1 << 20) as browser,
        browser.get(ui.url.with_path("/changes")) as answer,
        asyncio.timeout(90),
    ):
        lines = (json.loads(line) async for line in answer.content)
        whole = await anext(line["report"] async for line in lines if "report" in line)
        assert [one["node"] for one in whole["nodes"]] == ["n1"]
        await served.add_node(node("n2", (pf(0),)))
        put = (line["changes"]["lists"].get("nodes", {"put": []})["put"] async for line in lines if "changes" in line)
        changed = await anext(nodes async for nodes in put if any(one["pfs"] for one in nodes))
        assert [one["node"] for one in changed] == ["n2"]


async def test_a_browser_is_told_while_the_api_server_does_not_answer() -> None:
    """It gets the time of the last answer, and nothing more until there is one."""
    server = PageServer()
    server.publish(Answer({"nodes": []}, ()))
    async with server.serving(0), asyncio.timeout(90):
        url = URL(server.address)
        right = {"Authorization": f"Bearer {url.fragment.removeprefix('token=')}"}
        async with aiohttp.ClientSession(headers=right) as browser, browser.get(url.with_path("/changes")) as answer:
            assert json.loads(await answer.content.readline()) == {"report": {"nodes": []}}
            server.api_answered(1_700_000_000, "connection refused")
            state = {"answered_at": "2023-11-14T22:13:20Z", "failure": "connection refused"}
            assert json.loads(await answer.content.readline()) == {"state": state}
            server.api_answered(1_700_000_010, "")
            assert json.loads(await answer.content.readline()) == {"state": {}}


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
