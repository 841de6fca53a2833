"""The page in Chromium: each view, what a tenant may write into it, and a change that appears by itself."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, Request, expect

from cli.plugin.assess.collect import WORKLOADS
from cli.plugin.assess.report import assess, report
from cli.plugin.assess.snapshot import PODS, Snapshot
from cli.plugin.page import html
from devcluster.apiserver.http.faults import Fault
from devcluster.demo.plugin_cluster import faulty
from mooring import names
from mooring.annotations.inventory import Out
from mooring.gpu.inventory import KEY as GPU_INVENTORY
from mooring.gpu.inventory import Gpu, GpuInventory, dump_gpu_inventory
from mooring.indexes import Indexes
from tests.cli.plugin.assess.conftest import snapshot_of
from tests.cli.plugin.cluster import Json, Served, bound, node, pf, pod, waiting
from tests.cli.plugin.page.interface import interface

pytestmark = pytest.mark.browser

RACK = "topology.kubernetes.io/rack"
HOSTILE = '</script><img src="http://attacker.example/x" onerror="document.title=1">'
GROUP = {names.GROUP: f'{{"name":"train","min":3,"within":"{RACK}"}}'}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    folder = tmp_path_factory.mktemp("faulty")
    faulty().write_captures(folder / "nodes", folder / "trees")
    return snapshot_of(faulty(), folder / "nodes")


async def _page(browser: Browser, requests: list[str], **options: object) -> Page:
    """Open an empty page that notes every request, and fails the test on an error of its script."""
    page = await browser.new_page(**options)  # type: ignore[arg-type]

    def note(request: Request) -> None:
        requests.append(request.url)

    page.on("request", note)
    page.on("pageerror", lambda error: pytest.fail(f"page error: {error}"))
    return page


def _in_rack(rack: str, document: Json) -> Json:
    document["metadata"]["labels"][RACK] = rack
    return document


async def _fill(served: Served) -> None:
    """Add two racks, a group of which one member is bound, and texts that would be markup."""
    out = replace(pf(1, pcie=("0000:00:01.0",)), out=(Out(Indexes.of([3]), HOSTILE),))
    await served.add_node(_in_rack("r1", node("n1", (pf(0, pcie=("0000:00:01.0",)), out))))
    await served.add_node(_in_rack("r2", node("n2", (pf(0),), ready=False)))
    placed = bound("train-0", "n1", (pf(0), 1, 5000))
    placed["metadata"]["annotations"] |= GROUP
    await served.add_pod(placed)
    refused = waiting("Unschedulable", f"0/2 nodes are available: {HOSTILE}")
    for name in ("train-1", "train-2"):
        await served.add_pod(pod(name, "[{}]", annotations=GROUP, status=refused))


async def test_each_view_of_a_page_in_a_file(served: Served, browser: Browser, tmp_path: Path) -> None:
    """Everything is text, nothing is fetched, and a phone needs no sideways scrolling."""
    await _fill(served)
    _, out, _ = await served.run("report")
    file = tmp_path / "cluster.html"
    file.write_text(out)
    requests: list[str] = []
    page = await _page(browser, requests, viewport={"width": 390, "height": 844})
    await page.goto(f"file://{file}")
    await expect(page.get_by_role("heading", name="r1")).to_be_visible()
    await expect(page.get_by_role("img", name="pf0 (rail0): 1 of 4 VFs used, 3 free, 0 out")).to_be_visible()
    await page.get_by_label("Show").select_option("faulty")
    await expect(page.get_by_role("link", name="n2")).to_be_visible()
    await expect(page.get_by_role("link", name="n1")).to_have_count(0)
    for view, text in (
        ("#/cluster?colour=namespace", "default"),
        ("#/nodes/n1", "Below PCIe bridge 0000:00:01.0"),
        ("#/nodes/n1", f"out: {HOSTILE}"),
        ("#/jobs", HOSTILE),
        ("#/jobs/default/train", "1 bound, 2 waiting, at least 3 together"),
        ("#/pods/default/train-0", "0000:04:00.3"),
        ("#/pods/default/train-1", HOSTILE),
        ("#/problems", "PF pf1 VF 3 out"),
        ("#/search?q=0000:04:00.3", "default/train-0"),
        ("#/nodes/%3Cb%3E", "The report has no node '<b>'."),
    ):
        await page.goto(f"file://{file}{view}")
        await expect(page.locator("main")).to_contain_text(text)
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert (view, width) == (view, 390)
    assert await page.locator("main img").count() == 0
    assert {url.partition("#")[0] for url in requests if not url.startswith("data:")} == {f"file://{file}"}


async def test_what_is_not_known_is_no_zero(guarded: Served, browser: Browser, tmp_path: Path) -> None:
    """Without the right to list pods, and with two PFs on one cable, which count once."""
    cable: Json = {"port": "switch/1", "mbps": 100_000}
    await guarded.add_node(node("n1", (pf(0, **cable), pf(1, **cable))))
    await guarded.restrict("nodes")
    _, out, _ = await guarded.run("report")
    file = tmp_path / "cluster.html"
    file.write_text(out)
    page = await _page(browser, [])
    await page.goto(f"file://{file}")
    total = "1 node · ? of 8 VFs used · ? of 90,000 Mb/s reserved"
    await expect(page.get_by_text(total).first).to_be_visible()
    await page.goto(f"file://{file}#/jobs")
    await expect(page.locator("main")).to_contain_text("Not known: your rights do not allow to list pods.")


async def test_an_assessment_is_shown_whole(broken: Snapshot, browser: Browser, tmp_path: Path) -> None:
    """Each finding has its evidence; 60 pods that wait are found by the filter; markup is text; nothing is fetched."""
    pods = list(broken.all(PODS))
    (first,) = [one for one in pods if one["metadata"]["name"] == "train-3"]
    hostile = {"training.kubeflow.org/job-name": HOSTILE}
    many = [
        {**first, "metadata": {**first["metadata"], "name": f"wait-{at}", "uid": f"w{at}", "labels": hostile}}
        for at in range(60)
    ]
    made = report(assess(replace(broken, lists={**broken.lists, PODS: [*pods, *many]}), WORKLOADS))
    file = tmp_path / "assessment.html"
    file.write_text(html.page(made.document))
    requests: list[str] = []
    page = await _page(browser, requests, viewport={"width": 390, "height": 844})
    await page.goto(f"file://{file}")
    text = await page.locator("main").inner_text()
    findings: Any = made.document["findings"]
    assert all(one["text"] in text and one["harm"] in text and one["prevention"] in text for one in findings)
    assert all(each["path"] in text and each["value"] in text for one in findings for each in one["evidence"])
    for view, shown in (
        ("#/nodes", "no netdev in the host's network namespace"),
        ("#/jobs", HOSTILE),
        ("#/decisions", "50 of 69 rows"),
        ("#/manifests", "Pod/default/near"),
        ("#/search?q=enp132s0f0", "NIC"),
    ):
        await page.goto(f"file://{file}{view}")
        await expect(page.locator("main")).to_contain_text(shown)
        assert (view, await page.evaluate("document.documentElement.scrollWidth")) == (view, 390)
    await page.goto(f"file://{file}#/decisions")
    await page.get_by_role("searchbox", name="Filter").fill("wait-59")
    await expect(page.locator("main")).to_contain_text("1 of 1 row that match, 69 in all")
    await expect(page.get_by_role("cell", name="default/wait-59")).to_be_visible()
    assert await page.locator("main img").count() == 0
    assert {url.partition("#")[0] for url in requests if not url.startswith("data:")} == {f"file://{file}"}


async def test_what_the_reader_does_outlives_a_change(served: Served, browser: Browser) -> None:
    """An open choice keeps its focus, a GPU is beside the PF of its switch, and a bar gets its new width."""
    bridge = "0000:00:01.0"
    gpus = GpuInventory((Gpu("0000:1b:00.0", "GPU-00000000-0000-4000-8000-000000000001", "nvidia", pcie=(bridge,)),))
    first = node("n1", (pf(0, pcie=(bridge,)),))
    first["metadata"]["annotations"][GPU_INVENTORY] = dump_gpu_inventory(gpus)
    await served.add_node(first)
    page = await _page(browser, [])
    async with interface(served) as ui:
        await page.goto(str(ui.url))
        beside = page.get_by_role("img", name=f"1 GPU below bridge {bridge}: 0 used, 0 out")
        await expect(page.locator(".beside", has=page.locator(".pf")).filter(has=beside)).to_be_visible()
        await page.get_by_label("Show").focus()
        await page.evaluate("window.before = document.activeElement")
        await served.add_node(node("n2", (pf(0),)))
        await expect(page.get_by_role("link", name="n2")).to_be_visible()
        assert await page.evaluate("window.before === document.activeElement")
        # One of four VFs: the bar that was there has another width.
        await served.add_pod(bound("a", "n1", (pf(0), 0, 5000)))
        await expect(page.locator(".segment.used")).to_have_css("flex-grow", "1")


async def test_an_api_server_that_goes_away_is_named(served: Served, browser: Browser) -> None:
    """The last report stays, with the time since its last update."""
    await served.add_node(node("n1", (pf(0),)))
    page = await _page(browser, [])
    async with interface(served) as ui:
        await page.goto(str(ui.url))
        await expect(page.get_by_role("link", name="n1")).to_be_visible()
        served.server.faults.plan(Fault("GET", "/version", "drop_before", times=2))
        await expect(page.get_by_role("status")).to_contain_text("The API server does not answer")
        await expect(page.locator("#taken")).to_contain_text("Last update")
        await expect(page.get_by_role("link", name="n1")).to_be_visible()
        await expect(page.get_by_role("status")).to_contain_text("live")


async def test_a_change_appears_where_the_reader_is(served: Served, browser: Browser) -> None:
    """The secret leaves the address, a new node appears by itself, and so does that the server has ended."""
    await _fill(served)
    requests: list[str] = []
    page = await _page(browser, requests)
    async with interface(served) as ui:
        await page.goto(str(ui.url))
        await expect(page.get_by_role("link", name="n1")).to_be_visible()
        assert ui.token not in page.url
        assert all(ui.token not in url for url in requests[1:])
        await page.get_by_role("link", name="Jobs").click()
        await expect(page.get_by_role("link", name="default/train")).to_be_visible()
        await page.get_by_role("link", name="Cluster").click()
        await served.add_node(_in_rack("r3", node("n3", (pf(0),))))
        await expect(page.get_by_role("heading", name="r3")).to_be_visible()
        await expect(page.get_by_role("status")).to_contain_text("live")
    await expect(page.get_by_role("status")).to_contain_text("`kubectl mooring ui` does not answer")
    assert {url.split("/")[2] for url in requests if not url.startswith("data:")} == {f"127.0.0.1:{ui.url.port}"}
