"""A person with a symptom finds what to do by the site's search: its own program ranks, run by Node.js."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is missing")

# What a person types, and the page that comes first.
QUERIES = {
    "not enough free RDMA bandwidth": "messages.html",
    "node(s) had no RDMA inventory": "messages.html",
    "0/5 nodes are available": "messages.html",
    "FailedScheduling": "messages.html",
    "VfLost": "messages.html",
    "no scheduler leads": "messages.html",
    "was it bypassed": "messages.html",
    "FailedCreatePodSandBox": "troubleshooting.html",
    "pod pending": "troubleshooting.html",
    "CreateContainerError": "troubleshooting.html",
    "ContainerCreating": "troubleshooting.html",
    "pod stuck terminating": "troubleshooting.html",
}


@pytest.fixture(scope="module")
def first_pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the page that the site's search shows first for each query."""
    site = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-q", "-d", str(site)], cwd=ROOT, env=environment, check=True
    )
    ranked = subprocess.run(
        ["node", str(Path(__file__).with_name("search.js")), str(site), json.dumps(list(QUERIES))],
        check=True,
        capture_output=True,
        text=True,
    )
    return {query: location.split("#")[0] for query, location in json.loads(ranked.stdout).items()}


@pytest.mark.parametrize("query", QUERIES)
def test_a_symptom_leads_to_the_catalogue_or_to_troubleshooting(query: str, first_pages: dict[str, str]) -> None:
    """Nothing else is of use to a person whose pod does not start."""
    assert first_pages[query] == QUERIES[query]
