"""The texts that Mooring's programs can print, as patterns, read from their source.

A text is any string of the source that holds two words or more and is a message. Not messages are docstrings,
annotations, the descriptions of options and metrics, names of threads, and texts of assertions (which only tests see).
An f-string's values become ``…``, and so do the fields of a template. Texts that are put together are found as their
parts.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
PROGRAMS = ("mooring", "scheduler", "advertiser", "cri_shim", "cni", "cli")
BLANK = "…"

# What these calls are given describes options, metrics and threads (`--help`, /metrics), or names what to look for.
_NO_MESSAGES = frozenset(
    {"option", "add_argument", "_add_scheduler", "ArgumentParser"}
    | {"Counter", "counter", "Gauge", "gauge", "_gauge", "Histogram", "GaugeMetricFamily"}
    | {
        "CounterMetricFamily",
        "Family",
        "Count",
        "Distribution",
        "Thread",
        "ThreadPoolExecutor",
        "compile",
        "_allowed_names",
    }
    | {"AssertionError", "Check"}
)
_WORD = re.compile(r"[A-Za-z]{2,}")
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Text:
    """A text as a pattern, and where it stands in the source."""

    pattern: str
    place: str


def texts() -> list[Text]:
    """Return every text of two words or more that can be printed."""
    return [text for text in strings() if _is_message(text)]


@cache
def strings() -> list[Text]:
    """Return every string of the programs' source that may be part of a message."""
    return [text for package in PROGRAMS for path in sorted((ROOT / package).rglob("*.py")) for text in _of(path)]


def forwarded() -> list[Text]:
    """Return the forwarder's own answers: its source is one string of the source."""
    path = ROOT / "cni/forwarder.py"
    answers = re.findall(r'"msg":"([^"]+)"', path.read_text(encoding="utf-8").replace("\\\\'", "'"))
    return [Text(normal(text), str(path.relative_to(ROOT))) for text in answers]


def policies() -> list[Text]:
    """Return what the admission policies reject with: messages, and the literals of message expressions."""
    found: list[Text] = []
    manifests = ROOT / "manifests"
    for path in sorted([*manifests.glob("base/guard/*.yaml"), *manifests.glob("components/*/policy.yaml")]):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            for rule in (document or {}).get("spec", {}).get("validations", ()):
                parts = [rule["message"], *_literals(rule.get("messageExpression", ""))]
                found += [Text(normal(text), str(path.relative_to(ROOT))) for text in parts]
    return [text for text in found if _is_message(text)]


def _literals(expression: str) -> list[str]:
    return [literal.replace('\\"', '"') for literal in _LITERAL.findall(expression)]


def _is_message(text: Text) -> bool:
    return " " in text.pattern and len(_WORD.findall(text.pattern)) > 1


def normal(text: str) -> str:
    """Return a text without what varies: its values, blanks, and what stands around its parts."""
    text = re.sub(r"\{[^{}]*\}", BLANK, text.replace("\n", " "))
    text = re.sub(rf"{BLANK}(\s*{BLANK})*", BLANK, text)
    return re.sub(r"\s+", " ", text).strip(f" :;,.!{BLANK}")


def _of(path: Path) -> Iterator[Text]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in _walk(tree):
        pattern = _pattern(node)
        if pattern is not None:
            yield Text(normal(pattern), f"{path.relative_to(ROOT)}:{node.lineno}")


def _walk(node: ast.AST) -> Iterator[ast.expr]:
    """Visit every string below a node, a whole f-string before the strings in its values."""
    annotations = (getattr(node, "annotation", None), getattr(node, "returns", None))
    for child in ast.iter_child_nodes(node):
        if child in annotations:
            continue
        if isinstance(child, ast.Call) and _callee(child) in _NO_MESSAGES:
            continue
        if isinstance(child, ast.keyword) and child.arg == "help":
            continue
        if isinstance(child, ast.Assert) or (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
            continue
        if isinstance(child, ast.Constant | ast.JoinedStr):
            yield child
        if not isinstance(child, ast.JoinedStr):
            yield from _walk(child)
            continue
        for value in child.values:
            if isinstance(value, ast.FormattedValue):
                yield from _walk(value)


def _pattern(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    parts = node.values if isinstance(node, ast.JoinedStr) else []
    return "".join(str(part.value) if isinstance(part, ast.Constant) else BLANK for part in parts)


def _callee(call: ast.Call) -> str:
    called = call.func
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
