"""Scalars as the templates have them: YAML whose own braces are escaped, and whose namespace is the release's."""

import json
import re
from typing import Any

import yaml

NAMESPACE = "mooring-system"
_LONGEST = 100_000
# Whole runs: a brace beside helm's own would be taken for a part of it.
_BRACES = re.compile(r"[{}]*(?:\{\{|\}\})[{}]*")
# Labels by their key: who applies the objects, and of which version they are.
_LABELS = {
    "app.kubernetes.io/managed-by": "{{ .Release.Service }}",
    "app.kubernetes.io/version": "{{ .Chart.AppVersion | quote }}",
}


def scalar(key: str, value: Any, indent: int) -> list[str]:
    """Return a scalar's first line, to stand behind its key, and the lines of a block that follow."""
    if key in _LABELS:
        return [_LABELS[key]]
    if isinstance(value, str) and "\n" in value:
        return _block(value, indent)
    if isinstance(value, str) and ("{{" in value or "}}" in value):
        return [_helm(json.dumps(value, ensure_ascii=False))]
    text = yaml.safe_dump(value, width=_LONGEST, allow_unicode=True, default_flow_style=True)
    return [_helm(text.removesuffix("...\n").strip())]


def _block(value: str, indent: int) -> list[str]:
    lines = value.split("\n")
    ends = lines[-1] == ""
    body = lines[:-1] if ends else lines
    return ["|" if ends else "|-", *(" " * indent + _helm(line) if line else "" for line in body)]


def _helm(text: str) -> str:
    escaped = _BRACES.sub(lambda found: '{{ "' + found[0] + '" }}', text)
    return escaped.replace(NAMESPACE, "{{ .Release.Namespace }}")
