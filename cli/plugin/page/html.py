"""Put the page together: styles, script and the report, in one file that loads nothing else.

The script is the modules in ``assets`` in their order, each without its imports and exports: a page in a file cannot
import another file. The Content Security Policy names script and styles by their hashes and forbids everything else.
"""

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files

# Each imports only those before it.
_MODULES = (
    "redraw",
    "elements",
    "report_changes",
    "live",
    "cluster_index",
    "links",
    "bars",
    "switches",
    "cluster_view",
    "node_view",
    "jobs_view",
    "pod_view",
    "problems_view",
    "search_view",
    "assessment_view",
    "main",
)
_IMPORT = re.compile(r"^import .*?;\n", re.MULTILINE | re.DOTALL)
_EXPORT = re.compile(r"^export ", re.MULTILINE)


def page(document: Mapping[str, object] | None) -> str:
    """Return the page with this report; without one, the page asks its own server for it."""
    script, styles = _script(), _asset("page.css")
    connections = "'none'" if document is not None else "'self'"
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(styles)}; connect-src {connections}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    values = {"policy": policy, "styles": styles, "report": _embedded(document), "script": script}
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], _asset("page.html"))


def _embedded(document: Mapping[str, object] | None) -> str:
    """Return the report as JSON that no text in it can end: names and messages may contain anything."""
    return "" if document is None else json.dumps(document).replace("<", "\\u003c")


@cache
def _script() -> str:
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", _asset(f"{name}.js"))).strip() for name in _MODULES)


@cache
def _asset(name: str) -> str:
    return files("cli.plugin.page").joinpath("assets", name).read_text()


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
