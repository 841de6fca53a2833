"""The pod reference has every field of a request and no other, and its examples are requests."""

import re
from typing import get_args

import pytest
import yaml

from mooring import group, names, request, settings
from tests.docs.texts import ROOT

PAGE = (ROOT / "docs/pod-reference.md").read_text(encoding="utf-8")


def rows(heading: str) -> dict[str, str]:
    """Return the tables of a section: the words in code of each first cell, with the row."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return {cell: line for line in section.splitlines() for cell in re.findall(r"^\| `([^`]+)` \|", line)}


def test_the_fields_are_those_of_a_request() -> None:
    """A field is documented if and only if `mooring/request.py` reads it."""
    selectors = {"network", "pf", "link", "name", "containers"}
    assert set(rows(names.REQUEST)) == {*settings.SETTING_NAMES, *selectors}
    # The reader names all that it knows where it refuses what it does not.
    with pytest.raises(ValueError, match="unknown field") as refused:
        request.read_request({names.REQUEST: '[{"?": 1}]'})
    known = str(refused.value).rpartition("known are ")[2].split(", ")
    assert set(rows(names.REQUEST)) == set(known)


def test_the_limits_of_fields_are_those_of_the_code() -> None:
    """Ranges and choices are in the row of their field."""
    fields = rows(names.REQUEST)
    assert f"0 to {settings.MAX_VLAN}" in fields["vlan"]
    assert f"0 to {settings.MAX_QOS}" in fields["qos"]
    assert all(f"`{state}`" in fields["link_state"] for state in get_args(settings.LinkState))
    assert all(f"`{link}`" in fields["link"] for link in names.LINK_TYPES)
    assert f"at most {request.MOST_INTERFACES}." in PAGE


def test_the_placements_are_those_of_the_code() -> None:
    """The page has every placement of the code, and no other."""
    assert set(rows(names.PLACEMENT)) == set(get_args(request.Spreading))


def test_the_fields_of_a_group_are_those_of_the_code() -> None:
    """Names, ranges and choices."""
    fields = rows(names.GROUP)
    with pytest.raises(ValueError, match="unknown field") as refused:
        group.read_group({names.GROUP: '{"?": 1}'})
    assert set(fields) == set(str(refused.value).rpartition("known are ")[2].split(", "))
    assert f"1 to {group.MOST_MEMBERS}" in fields["min"]
    assert f"at most {group.MOST_LEVELS}" in fields["prefer"]
    assert all(f"`{rails}`" in fields["rails"] for rails in get_args(group.Rails))


def test_the_manifests_of_jobs_can_be_read() -> None:
    """Each template in the page is read by the scheduler's own readers."""
    text = (ROOT / "docs/jobs.md").read_text(encoding="utf-8")
    jobs = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    assert jobs
    for job in jobs:
        annotations = job["spec"]["template"]["metadata"]["annotations"]
        asked = group.read_group(annotations)
        assert asked is not None
        assert asked.min == job["spec"]["parallelism"]
        assert request.read_request(annotations) is not None


@pytest.mark.parametrize("page", ["pod-reference.md", "quick-start.md", "migration.md"])
def test_the_examples_can_be_read(page: str) -> None:
    """Each pod in a page is read by the scheduler's own reader."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    asked = [annotations for pod in found if (annotations := (pod.get("metadata") or {}).get("annotations"))]
    requests = [request.read_request(annotations) for annotations in asked if names.REQUEST in annotations]
    assert requests
    assert all(asks is not None and asks.interfaces for asks in requests)
