"""JSONPath templates: kubectl's own language, beside kubectl where the machine has it."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cli.plugin.output.jsonpath import JsonPathError, Template
from cli.plugin.output.jsonpath import Path as JsonPath

CONFIG: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "preferences": {},
    "current-context": "b",
    "clusters": [{"name": "c1", "cluster": {"server": "http://one"}}],
    "users": [{"name": "u.1", "user": {"username": "x", "as-groups": ["g", "h"]}}],
    "contexts": [
        {"name": "a", "context": {"cluster": "c1", "user": "u.1", "namespace": "n}1"}},
        {"name": "b", "context": {"cluster": "c1", "user": "u.1"}},
        {"name": "c", "context": {"cluster": "c2", "user": "u.1", "namespace": "n2"}},
    ],
}
TEMPLATES = (
    "{.contexts[*].name}",
    "{.contexts[0].name} and {.contexts[-1].name}",
    "{.contexts[0:2].name}",
    "{.contexts[1:].name}",
    "{.contexts[0,2].name}",
    "{$.kind}",
    "{['kind']}",
    "{['kind','apiVersion']}",
    "{.current-context}",
    "{.missing.field}",
    "{.contexts[*].context.namespace}",
    "{..server}",
    "{.contexts..cluster}",
    "{.clusters[0].cluster.*}",
    '{range .contexts[*]}{.name}{"\\t"}{.context.namespace}{"\\n"}{end}',
    "{range .contexts[*]}[{.name},{.context.cluster}] {end}",
    "{range .users[*]}{range .user.as-groups[*]}<{@}>{end}{end}end",
    '{.contexts[?(@.name=="b")].context.cluster}',
    "{.contexts[?(@.name=='b')].context.cluster}",
    '{.contexts[?(@.name!="b")].name}',
    "{.contexts[?(@.context.namespace)].name}",
    '{.contexts[?(@.name>"a")].name}',
    '{.contexts[?(@.context.cluster=="c2")].name}{"\\n"}',
    "{.users[0].user.as-groups}",
    "plain text",
    "",
)


@pytest.mark.kubectl
def test_each_template_gives_what_kubectl_gives(tmp_path: Path) -> None:
    """`kubectl config view` prints a kubeconfig by a template, and asks no server."""
    file = tmp_path / "config"
    file.write_text(json.dumps(CONFIG))
    whole = subprocess.run(
        ["kubectl", "config", "view", "--raw", "--kubeconfig", file, "-o", "json"], capture_output=True, check=True
    )
    document = json.loads(whole.stdout)
    for template in TEMPLATES:
        argv = ["kubectl", "config", "view", "--raw", "--kubeconfig", str(file), "-o", f"jsonpath={template}"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if template:
            assert (template, Template(template).render(document)) == (template, done.stdout)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (r"{.items[*].metadata.annotations.mooring\.dev/why}", "because"),
        ("{.items[*].n}", "1 2"),
        ("{.items[?(@.n>1)].ok}", "true"),
        ("{.items[?(@.ok==true)].n}", "2"),
        ("{.items[0].none}", "null"),
        ("{.items[0]}", '{"metadata":{"annotations":{"mooring.dev/why":"because"}},"n":1,"none":null,"ok":false}'),
        ("{.items[0].metadata.annotations}", '{"mooring.dev/why":"because"}'),
        ('{.items[?(@.metadata.annotations.mooring\\.dev/why=="because")].n}', "1"),
        ("{.items[::2].n}", "1"),
        ("{@.kind}", "List"),
    ],
)
def test_values_are_found_and_printed(template: str, text: str) -> None:
    """Strings as they are, other values as JSON."""
    first = {"n": 1, "ok": False, "none": None, "metadata": {"annotations": {"mooring.dev/why": "because"}}}
    document = {"kind": "List", "items": [first, {"n": 2, "ok": True}]}
    assert Template(template).render(document) == text


def test_control_characters_of_a_value_do_not_reach_the_terminal() -> None:
    """Any user can write annotations."""
    assert Template('{.x}{"\\n"}').render({"x": "a\x1b[31m\nb"}) == "a\N{REPLACEMENT CHARACTER}[31m\nb\n"


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{.items[*", "unclosed action"),
        ("{.items[*}", "unterminated array"),
        ("{.items[x]}", "invalid array index x"),
        ("{.items[?(@.a=='b']}", "unterminated filter"),
        ("{.items[?(@.a=~'b')]}", "kubectl knows no &&, || and =~"),
        ("{.items[?(@.a=='b' && @.c)]}", "kubectl knows no &&, || and =~"),
        ("{.items[?(@.a=!'b')]}", "unrecognized filter operator =!"),
        ("{range .items[*]}{.name}", "range without end"),
        ("{.name}{end}", "not in range, nothing to end"),
        ("{name}", "unrecognized identifier name"),
        ("{.a/ b}", "unrecognized identifier b"),
        ("{.a}{#}", "unrecognized character in action: '#'"),
        ('{"a', "unterminated quoted string"),
        ('{"a".b}', "a quoted string is followed by"),
    ],
)
def test_a_wrong_template_is_refused_with_the_rule(template: str, why: str) -> None:
    """Before anything is read from the API server."""
    with pytest.raises(JsonPathError, match=r"^error parsing jsonpath .*, ") as wrong:
        Template(template)
    assert why in str(wrong.value)


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{.items[5]}", "array index out of bounds: index 5, length 1"),
        ("{.name[0]}", "x is not array or slice"),
        ("{.items[?(@.n>'a')]}", "incompatible types for comparison: 1, a"),
    ],
)
def test_a_template_that_does_not_fit_the_values_is_reported(template: str, why: str) -> None:
    """As kubectl reports it."""
    with pytest.raises(JsonPathError, match=f"^{re.escape(why)}$"):
        Template(template).render({"name": "x", "items": [{"n": 1}]})


@pytest.mark.parametrize("text", [".metadata.name", "{.metadata.name}"])
def test_a_single_path_needs_no_braces(text: str) -> None:
    """As of kubectl's --sort-by."""
    assert JsonPath(text).values({"metadata": {"name": "n"}}) == ["n"]
