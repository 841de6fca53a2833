"""The page in Chromium on the demo's cluster: each view shows what Mooring's programs did, and a pod that comes."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from devcluster.api import POD_GROUPS, PODS, Api
from devcluster.cluster import Cluster
from devcluster.demo.page import page_address
from devcluster.demo.scenario import POD_GROUP, pods, ranks
from mooring import names
from tests.support.polling import wait_until

pytestmark = [pytest.mark.root, pytest.mark.browser]
NODES = ("n1", "n2")
SCREENSHOTS = Path(__file__).parents[4] / "docs/screenshots.py"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    started = Cluster(tmp_path_factory.mktemp("page"), NODES, runtime="small", gpus_on=NODES, is_whole=True)
    try:
        started.start()
        api = Api.of(started.kubeconfig)

        def are_published() -> bool:
            annotations = [node["metadata"].get("annotations", {}) for node in api.items("/api/v1/nodes")]
            return all({names.INVENTORY, f"{names.INVENTORY}.gpu"} <= set(one) for one in annotations)

        wait_until(are_published, "the inventories of all nodes", pause_s=0.2)
        yield started
    finally:
        started.stop()


async def test_each_view_of_the_demos_cluster(cluster: Cluster, browser: Browser, tmp_path: Path) -> None:
    """A pod with GPUs appears where the reader is; the job waits; all pictures of the docs are made."""
    api = Api.of(cluster.kubeconfig)
    api.request("POST", POD_GROUPS, POD_GROUP)
    for rank in ranks():
        api.request("POST", PODS, rank.manifest())
    address = page_address(cluster)
    page = await browser.new_page()
    await page.goto(address)
    main = page.locator("main")
    await expect(page.get_by_role("img", name="2 GPUs below bridge").first).to_be_visible()
    await expect(page.locator(".tile", has_text="GPUs used")).to_contain_text("0 of 8")
    (pair,) = [one for one in pods([*NODES, "n3"]) if one.gpus]
    api.request("POST", PODS, pair.manifest())
    await expect(page.locator(".tile", has_text="GPUs used")).to_contain_text("2 of 8")
    wait_until(lambda: api.pods()[pair.name]["status"].get("phase") == "Running", "the pod runs", pause_s=0.2)
    node = api.pods()[pair.name]["spec"]["nodeName"]
    for view, text in (
        (f"#/nodes/{node}", f"used (default/{pair.name}, beside enp"),
        (f"#/pods/default/{pair.name}", f"Scores of {node}"),
        ("#/jobs", "default/train"),
        ("#/problems", "Checks"),
        ("#/search?q=enp4s0f0", "PF"),
    ):
        await page.evaluate("view => { location.hash = view }", view)
        await expect(main).to_contain_text(text)
    assessment = tmp_path / "assessment.html"
    subprocess.run([sys.executable, "-m", "devcluster.demo", "--assess", "--html", str(assessment)], check=True)
    subprocess.run([sys.executable, str(SCREENSHOTS), address, str(assessment), str(tmp_path)], check=True)
    pictures = sorted(tmp_path.glob("page-*.png"))
    assert [one.stem for one in pictures] == [
        f"page-{view}" for view in ("assessment", "cluster", "jobs", "node", "pod", "problems")
    ]
    assert all(10_000 < one.stat().st_size < 150_000 for one in pictures)
