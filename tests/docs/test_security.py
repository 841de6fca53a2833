"""The rules of docs/security.md name tests and attacks in bench/hostile: each is there, and no attack is left out."""

import ast
import re
from functools import cache

import yaml

from bench.hostile.attack import ATTACKS
from bench.hostile.attacks import __all__ as files
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/security.md").read_text(encoding="utf-8")
TESTS = (ROOT / "bench/hostile/README.md").read_text(encoding="utf-8")
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_HELD = re.compile(r"`([a-z][a-z0-9]*(?:-[a-z0-9]+)*)`")


@cache
def _functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_test_that_is_named_exists() -> None:
    """A rule is not said to be held by a test that was renamed or removed."""
    named = _TEST.findall(TESTS)
    assert len(named) > 20
    assert [(path, name) for path, name in named if name not in _functions(path)] == []


def test_every_attack_is_named() -> None:
    """Who adds an attack says what it is against."""
    assert "pods" in files
    assert ATTACKS.keys() - set(_HELD.findall(TESTS)) == set()


def test_the_page_lists_what_the_policy_lets_an_advertiser_write() -> None:
    """Annotations, resources and conditions; a policy that allows more would leave the page too small."""
    (row,) = (item for item in PAGE.split("\n- ") if item.startswith("**advertiser `serve`**:"))
    policy = next(yaml.safe_load_all((ROOT / "manifests/base/guard/inventory.yaml").read_text(encoding="utf-8")))
    allowed = {one["name"]: re.findall(r"'([^']+)'", one["expression"]) for one in policy["spec"]["variables"]}
    listed = " ".join(row.split()).partition("its own node's ")[2].partition(";")[0]
    wanted = [*allowed["inventories"], *allowed["resources"], *allowed["ownTypes"]]
    assert re.findall(r"`([^`]+)`", listed) == wanted


def test_every_rule_of_the_page_has_its_tests() -> None:
    """A rule that is new or gone is new or gone in the list of tests, which has it by its number."""
    rules = re.findall(r"^- \*\*([TNL]\d+)\*\* ", PAGE, re.MULTILINE)
    assert len(rules) > 20
    assert re.findall(r"^- ([TNL]\d+): `", TESTS, re.MULTILINE) == rules
