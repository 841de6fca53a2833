"""The page as a file: one document that loads nothing, and in which no text from the cluster is markup."""

import base64
import hashlib
import json
import re

from cli.plugin.page.html import page

HOSTILE = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>\u2028"


def test_a_hostile_text_stays_a_text() -> None:
    """The report is read back unchanged, and the page has no script beside the report and its own."""
    made = page({"nodes": [HOSTILE]})
    assert len(re.findall("<script", made)) == 2
    embedded = re.search(r'id="report">(.*?)</script>', made, re.DOTALL)
    assert embedded is not None
    assert json.loads(embedded[1]) == {"nodes": [HOSTILE]}


def test_the_policy_allows_its_own_script_and_styles_alone() -> None:
    """Their hashes are those of what the page has, and nothing may be fetched but by the page of a server."""
    for document, connections in (({"nodes": []}, "'none'"), (None, "'self'")):
        made = page(document)
        policy = re.search(r'Content-Security-Policy" content="(.*?)"', made)
        assert policy is not None
        directives = dict(one.strip().split(" ", 1) for one in policy[1].split(";"))
        [styles] = re.findall(r"<style>(.*?)</style>", made, re.DOTALL)
        [script] = re.findall(r'<script type="module">(.*?)</script>', made, re.DOTALL)
        assert directives["style-src"] == _hash(styles)
        assert directives["script-src"] == _hash(script)
        assert directives["connect-src"] == connections
        assert directives["default-src"] == "'none'"


def test_the_modules_are_one_script() -> None:
    """No import is left, which a file could not load."""
    [script] = re.findall(r'<script type="module">(.*?)</script>', page(None), re.DOTALL)
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
