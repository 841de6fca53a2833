"""The page of `assess --html`: nothing leaves it, and no text of the cluster becomes markup."""

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

from cli.plugin.assess.collect import WORKLOADS
from cli.plugin.assess.page import page
from cli.plugin.assess.report import assess, report
from cli.plugin.assess.snapshot import NODES, PODS, Snapshot

HOSTILE = '"><script src=//evil.example/x></script><img src=x onerror=alert(1)>\u202e\x1b[31m'
ALLOWED = frozenset(
    ("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "table", "tr", "th", "td", "details", "summary")
) | {"code"}


class Tags(HTMLParser):
    """Collects all tags with their attributes, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile(value: Any) -> Any:
    """Return a document in which names, messages and label values are markup."""
    if isinstance(value, dict):
        changed = {"message", "job-name", "training.kubeflow.org/job-name", "image"}
        return {key: HOSTILE if key in changed else hostile(one) for key, one in value.items()}
    return [hostile(one) for one in value] if isinstance(value, list) else value


def test_no_text_becomes_markup_and_nothing_is_fetched(broken: Snapshot) -> None:
    lists = {**broken.lists, PODS: hostile(list(broken.all(PODS))), NODES: hostile(list(broken.all(NODES)))}
    answer = report(assess(replace(broken, lists=lists), WORKLOADS))
    found = Tags(page(answer.tables, answer.document))
    assert found.tags <= ALLOWED
    assert found.attributes <= {"lang", "charset", "http-equiv", "content", "class"}
    assert "<script src=//evil.example/x>" in found.text
    assert "\x1b" not in found.text


def test_the_page_has_every_finding_with_its_evidence(broken: Snapshot) -> None:
    answer = report(assess(broken, WORKLOADS))
    text = Tags(page(answer.tables, answer.document)).text
    findings: Any = answer.document["findings"]
    assert all(one["text"] in text and one["harm"] in text for one in findings)
    assert all(each["value"] in text for one in findings for each in one["evidence"])
