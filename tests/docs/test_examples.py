"""The pages' examples and commands are read by the programs, and name what the manifests have."""

import json
import re
from pathlib import Path

import pytest
import yaml

from advertiser.inventory.offer import read_offer
from cni.spec.network import read_network
from docs.hooks.texts import ROOT

DOCS = ROOT / "docs"
MANIFESTS = sorted((ROOT / "manifests/base").rglob("*.yaml"))
PAGES = sorted(DOCS.glob("*.md"), key=lambda page: page.name)


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def test_the_networks_of_a_node_are_a_configuration_of_the_plugin() -> None:
    """The file that the installation page shows is one that `mooring-cni` takes."""
    [text] = blocks("install.md", "json")
    read = {name: read_network(one, f"networks.{name}") for name, one in json.loads(text)["networks"].items()}
    assert [(name, one.mtu) for name, one in read.items()] == [("rail0", None)]


def test_the_offers_are_ones_that_the_advertiser_takes() -> None:
    """Every field that the advertiser's page and the installation's show exists."""
    [text], [_, small] = blocks("advertiser.md", "yaml"), blocks("install.md", "yaml")
    assert all(read_offer(json.dumps(yaml.safe_load(one)), "offer.yaml").entries for one in (text, small))


def test_the_overlay_names_the_images_that_the_manifests_have() -> None:
    """An image that is not there would be renamed silently: nothing would come from the registry."""
    text, _ = blocks("install.md", "yaml")
    renamed = {image["name"] for image in yaml.safe_load(text)["images"]}
    paths = [*MANIFESTS, *(ROOT / "manifests/components").rglob("*.yaml")]
    there = {image for path in paths for image in re.findall(r"^\s+image: (\S+)$", path.read_text(), re.MULTILINE)}
    assert renamed == there


def test_every_alert_has_its_line() -> None:
    """Every alert has its line about what to do, and no line is of an alert that is gone."""
    rules = (ROOT / "manifests/components/monitoring/rules.yaml").read_text(encoding="utf-8")
    section = (DOCS / "operations.md").read_text(encoding="utf-8").split("\n## What to watch\n", 1)[1]
    lines = re.findall(r"^- (`Mooring[^:]*):", section, re.MULTILINE)
    assert {name for line in lines for name in re.findall(r"`(\w+)`", line)} == set(re.findall(r"alert: (\w+)", rules))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_name_containers_and_labels_that_exist(page: Path) -> None:
    """The `kubectl logs` and `exec` commands of the pages name containers and labels of the manifests."""
    text = page.read_text(encoding="utf-8")
    components = sorted((ROOT / "manifests/components").rglob("*.yaml"))
    objects = "".join(path.read_text(encoding="utf-8") for path in [*MANIFESTS, *components])
    commands = [line for line in text.splitlines() if re.search("kubectl -n mooring-(system|node) ", line)]
    named = {name for line in commands for name in re.findall(r" -c ([a-z]+)", line)}
    selected = {name for line in commands for name in re.findall(r" -l app\.kubernetes\.io/name=(\S+)", line)}
    assert {name for name in named if f"- name: {name}\n" not in objects} == set()
    assert {name for name in selected if f"app.kubernetes.io/name: {name}\n" not in objects} == set()


# Files that a page has its reader write.
WRITTEN_BY_THE_READER = {"manifests/overlays/ours/kustomization.yaml", "scheduler/plugins/dedicated_nodes.py"}


@pytest.mark.parametrize("page", [*PAGES, *sorted(ROOT.glob("*.md"))], ids=lambda page: page.stem)
def test_paths_and_modules_that_pages_name_exist(page: Path) -> None:
    """A module that was moved is named by its new place: `folder/file` and `python -m package.module`."""
    text = page.read_text(encoding="utf-8")
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()}
    paths = {path for path in re.findall(r"`([A-Za-z_]+/[\w./-]+)`", text) if path.split("/")[0] in folders}
    modules = {name.replace(".", "/") for name in re.findall(r"python -m ([a-z_]+(?:\.\w+)*)", text)}
    ours = {name for name in modules if name.split("/")[0] in folders}
    assert {path for path in paths - WRITTEN_BY_THE_READER if not (ROOT / path).exists()} == set()
    assert {
        name for name in ours if not ((ROOT / f"{name}.py").exists() or (ROOT / name / "__main__.py").exists())
    } == set()
