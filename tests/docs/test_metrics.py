"""Every metric that a program serves is named in the documentation, and the scheduler's page names no other."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT

_NAME = re.compile(r"(?:mooring|scheduler|leader_election)_[a-z_]+")
# Prometheus' own classes, and what the programs make them with.
_CALLS = re.compile(r"_?(?:count|counter|gauge|distribution|histogram|\w+metricfamily)")


def metrics(folder: str) -> Iterator[str]:
    """Yield the names that calls in a folder give to metrics as their first argument."""
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args and isinstance(name := node.args[0], ast.Constant):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if _CALLS.fullmatch(called.lower()) and _NAME.fullmatch(str(name.value)):
                    yield str(name.value).removesuffix("_total")


@pytest.mark.parametrize(("folder", "least"), [("scheduler", 30), ("advertiser", 13), ("cni", 18), ("cri_shim", 5)])
def test_every_metric_is_named_in_the_documentation(folder: str, least: int) -> None:
    """A metric that no page names is of no use to an operator."""
    names = set(metrics(folder))
    text = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md"))
    assert len(names) >= least
    assert {name for name in names if not re.search(rf"\b{name}(_total)?\b", text)} == set()


def test_the_scheduler_serves_every_metric_of_its_page() -> None:
    """A metric that was renamed is not shown under its old name."""
    text = (ROOT / "docs/scheduler.md").read_text(encoding="utf-8")
    shown = {name.removesuffix("_total") for name in re.findall(rf"`({_NAME.pattern})", text)}
    assert shown - set(metrics("scheduler")) == set()
