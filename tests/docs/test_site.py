"""The site as a browser gets it: search leads a person with a symptom to what to do, and no code scrolls sideways."""

import html
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

# What `docs/site.css` leaves room for at 1440 px.
_MOST_COLUMNS = 88

# What a person with a symptom types, and the page that comes first.
SYMPTOMS = {
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
# What a person with a task types.
TASKS = {
    "first pod": "quick-start.html",
    "PodGroup": "jobs.html",
    "GPU": "gpus.html",
    "change rates": "rates.html",
    "quota": "autoscaling.html",
    "helm": "install.html",
    "upgrade": "operations.html",
    "drain": "kubectl-mooring.html",
    "support bundle": "kubectl-mooring.html",
    "extender": "extender.html",
    "gang scheduling": "jobs.html",
    "Deployment": "pod-reference.html",
    "50 Gb/s": "pod-reference.html",
    "CRI shim fails": "operations.html",
    "device plugin": "migration.html",
    "back to a device plugin": "migration.html",
    "from SR-IOV device plugin": "migration.html",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the built site."""
    site = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "-d", str(site)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return site


@pytest.fixture(scope="module")
def first_pages(site: Path) -> dict[str, str]:
    """Return the page that the site's own search program shows first for each query."""
    ranked = subprocess.run(
        ["node", str(Path(__file__).with_name("search.js")), str(site), json.dumps([*SYMPTOMS, *TASKS])],
        check=True,
        capture_output=True,
        text=True,
    )
    return {query: location.split("#")[0] for query, location in json.loads(ranked.stdout).items()}


@pytest.mark.skipif(shutil.which("node") is None, reason="node is missing")
@pytest.mark.parametrize("query", SYMPTOMS)
def test_a_symptom_leads_to_the_catalogue_or_to_troubleshooting(query: str, first_pages: dict[str, str]) -> None:
    """Nothing else is of use to a person whose pod does not start."""
    assert first_pages[query] == SYMPTOMS[query]


@pytest.mark.skipif(shutil.which("node") is None, reason="node is missing")
@pytest.mark.parametrize("query", TASKS)
def test_a_task_leads_to_its_page(query: str, first_pages: dict[str, str]) -> None:
    """The catalogue has most words, so it would come first for all."""
    assert first_pages[query] == TASKS[query]


def test_no_code_is_wider_than_a_page(site: Path) -> None:
    """A reader sees each command and output as a whole, beside both sidebars."""
    wide = [
        f"{page.name}: {line}"
        for page in sorted(site.glob("*.html"))
        for block in re.findall(r"<pre.*?</pre>", page.read_text(encoding="utf-8"), re.DOTALL)
        for line in html.unescape(re.sub(r"<[^>]+>", "", block)).splitlines()
        if len(line.expandtabs()) > _MOST_COLUMNS
    ]
    assert wide == []


def test_no_command_is_shown_as_prose(site: Path) -> None:
    """A block right below a list belongs to its last entry, unless it is indented twice."""
    lines = [
        f"{page.name}: {line}"
        for page in sorted(site.glob("*.html"))
        for line in re.findall(r"<p>(\$ .*)", page.read_text(encoding="utf-8"))
    ]
    assert lines == []
