"""What `kubectl mooring lint` reports of manifests, by line, field and rule."""

import io
import itertools
import json
from pathlib import Path

import pytest

from cli.__main__ import main
from cli.plugin.reports.lint.report import report

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: a
  annotations:
    mooring.dev/interfaces: '%s'
spec:
  schedulerName: mooring
  containers:
    - name: c
      image: i
"""
# Letters, each with the one before it.
PAIRS = list(itertools.pairwise(b"abcdefghij"))
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  template:
    metadata:
      annotations:
        mooring.dev/interfaces: |
          [{"min_tx_rate": 1}]
    spec:
      hostNetwork: true
      nodeName: n1
      containers: [{name: c}]
"""


def said(text: str) -> list[tuple[int, str, str]]:
    """Return the findings in a file as line, field and rule."""
    document = json.loads(json.dumps(report([("f.yaml", text)], ("mooring",)).document))
    return [(one["line"], one["field"], one["rule"]) for one in document["findings"]]


@pytest.mark.parametrize("request_text", ["[]", "[{}]", '[{"min_tx_rate":1,"max_tx_rate":2,"containers":["c"]}]'])
def test_what_the_scheduler_takes_is_not_spoken_of(request_text: str) -> None:
    """The exit status is 0, without findings."""
    assert said(POD % request_text) == []


@pytest.mark.parametrize(
    ("request_text", "rule"),
    [
        ("{", "not valid JSON"),
        ("{}", "an object of 0 is not a list"),
        ('[{"min_tx_rat":1}]', "[0].min_tx_rat: unknown field"),
        ('[{"min_tx_rate":-1}]', "[0].min_tx_rate: -1 is not an integer"),
        ('[{"min_tx_rate":2,"max_tx_rate":1}]', "[0].min_tx_rate: 2 exceeds max_tx_rate 1"),
        ('[{},{"containers":["d"]}]', "[1].containers: 'd' is not a container of this pod"),
        (f"[{'{},' * 64}{{}}]", "has 65 entries, more than 64"),
    ],
)
def test_a_request_is_judged_as_the_scheduler_judges_it(request_text: str, rule: str) -> None:
    """A finding is on the line of the annotation, with the place within it."""
    ((line, field, found),) = said(POD % request_text)
    assert (line, field) == (6, "metadata.annotations.mooring.dev/interfaces")
    assert found.startswith(rule)


@pytest.mark.parametrize(
    ("request_text", "count", "rule"),
    [
        ('{"together":"link","vfs":"switch"}', 2, ""),
        ('{"together":"nvlink"}', 2, "'nvlink' is not one of link, switch, numa"),
        ('{"count":3}', 2, "the containers' limits of 'mooring.dev/gpu' add up to 2, not 3"),
        ("{}", 0, "no container has a limit of 'mooring.dev/gpu'"),
        ("{}", 65, "add up to 65, more than 64"),
    ],
)
def test_a_request_for_gpus_is_read_too(request_text: str, count: int, rule: str) -> None:
    """By the scheduler's reader, with the limits of the pod's containers."""
    text = (POD % "[{}]").replace("spec:\n", f"    mooring.dev/request.gpu: '{request_text}'\nspec:\n")
    found = said(f"{text}      resources: {{limits: {{mooring.dev/gpu: {count}}}}}\n")
    assert len(found) == bool(rule)
    assert all(rule in told for _, _, told in found)


@pytest.mark.parametrize(
    ("key", "text", "rule"),
    [
        ("group", '{"min":1,"name":"a","rail":"same"}', "rail: unknown field; known fields are "),
        ("group", '{"name":"a"}', "field 'min' is missing"),
        ("group", "[]", "an object"),
        ("request.gpu", '{"vfs":"swich"}', "vfs: 'swich' is not"),
    ],
)
def test_a_wrong_annotation_is_named_by_its_own_line(key: str, text: str, rule: str) -> None:
    """The field is the annotation, and not the pod's spec, whichever reader has refused it."""
    wrong = (POD % "[{}]").replace("spec:\n", f"    mooring.dev/{key}: '{text}'\nspec:\n")
    ((line, field, told),) = said(f"{wrong}      resources: {{limits: {{mooring.dev/gpu: 1}}}}\n")
    assert (line, field) == (7, f"metadata.annotations.mooring.dev/{key}")
    assert rule in told
    assert not told.startswith("annotation")


def test_kinds_of_plug_ins_are_not_judged() -> None:
    """The scheduler that knows them is not here; neither is what they would say of the same pod."""
    other = (POD % "[{}]").replace("spec:\n", "    mooring.dev/request.licence: '{}'\nspec:\n")
    assert said(other) == []


def test_every_field_that_the_guard_would_refuse_is_named_on_its_own_line() -> None:
    """Templates are checked too; the finding has the field's whole path."""
    found = said(f"# two documents\n---\n{DEPLOYMENT}")
    assert [(line, field) for line, field, _ in found] == [
        (13, "spec.template.spec.schedulerName"),
        (14, "spec.template.spec.hostNetwork"),
        (15, "spec.template.spec.nodeName"),
    ]
    found = said(DEPLOYMENT.replace("min_tx_rate", "min_tx_rat"))
    assert [line for line, _, _ in found] == [9, 11, 12, 13]


def test_a_request_on_the_deployment_and_not_on_its_pods_is_found() -> None:
    """The field would be ignored there, without any message."""
    text = DEPLOYMENT.replace("  name: web\n", "  name: web\n  annotations: {rdma_interfaces_required: '[{}]'}\n")
    assert any("move it to spec.template.metadata.annotations" in rule for _, _, rule in said(text))


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("mooring.dev/interfaces", "mooring.dev/interface", "unknown annotation; known are"),
        ("mooring.dev/interfaces", "mooring.dev/assignment", "is written by the scheduler only"),
        ("    mooring", "    rdma_interfaces_required: '[]'\n    mooring", "only one may be given"),
        ("'[{}]'", "[{}]", "is not a string: quote it"),
        ("'[{}]'", f"'[{{}}{' ' * 40_000}]'", "has 40004 characters, the most is 32768"),
        ("name: c\n", "name: c\n      resources: {limits: {rdma-sriov/vf: 2}}\n", "the numbers must be equal"),
        ("kind: Pod\n", "kind: Pod\n\tx", "not YAML"),
    ],
)
def test_all_else_that_would_be_refused_is_found(old: str, new: str, rule: str) -> None:
    """Misspelt keys, both keys at once, sizes, and what only the scheduler knows."""
    assert any(rule in found for _, _, found in said((POD % "[{}]").replace(old, new)))


def test_anything_may_be_linted() -> None:
    """Files that hold no pods, or nothing that makes sense, raise nothing."""
    for text in (
        "",
        "---\n---\n",
        "[]",
        "kind: [x]",
        "kind: Pod",
        "kind: List\nitems: [1]",
        "a: &a [*a]",
        "kind: Pod\nspec: 3",
    ):
        said(text)


_ITEM = "{spec: {schedulerName: mooring}, metadata: {name: x, annotations: {mooring.dev/interfaces: '[1]'}}}"


@pytest.mark.parametrize(
    ("before", "line"),
    [
        (f"kind: PodList\nitems:\n- {_ITEM}\n", 3),
        (f"kind: List\nitems:\n- {{kind: PodList, items: [{_ITEM}]}}\n", 3),
        (f"kind: DeploymentList\nitems:\n- {{metadata: {{name: x}}, spec: {{template: {_ITEM}}}}}\n", 3),
        (f"[1]\n---\ntext\n---\nkind: PodList\nitems: [{_ITEM}]\n", 6),
    ],
)
def test_lists_of_any_kind_are_opened_and_what_is_not_an_object_is_passed_over(before: str, line: int) -> None:
    """Items of a PodList need no kind of their own: the API writes them without one."""
    (found,) = said(before)
    assert found[0] == line
    assert found[2].startswith("[0]: 1 is not an object")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"a: 1\nb: \xff", ":2: not YAML: character 0xdcff is not allowed (column 4)"),
        (b"b: \x01", ":1: not YAML: character 0x1 is not allowed (column 4)"),
        (b"a: 1\n b: 2", ":2: not YAML: mapping values are not allowed in this context (column 3)"),
        (b"a: [1,\n  b: }", ":2: not YAML: did not find expected node content (column 6)"),
        (b"kind: Pod\n---\n? {a: 1}\n: b\n", ":3: not YAML: found unhashable key (column 3)"),
        (b"[" * 5000, ":1: not YAML: nested deeper than 64 levels (column 65)"),
        (b"[" * 70 + b"]" * 70, ":1: not YAML: nested deeper than 64 levels (column 65)"),
        (
            b"- &a [1]\n" + b"".join(b"- &%c [%s]\n" % (next_, b",".join([b"*%c" % one] * 9)) for one, next_ in PAIRS),
            ":7: not YAML: more than 200000 values (column 7)",
        ),
    ],
)
def test_a_file_that_is_not_yaml_or_too_much_of_it_is_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, why: str
) -> None:
    """Files come from anyone: a few aliases of aliases would fill the memory. The other files are read all the same."""
    odd, bad = tmp_path / "odd.yaml", tmp_path / "bad.yaml"
    odd.write_bytes(content)
    bad.write_text(POD % "[1]")
    assert main(["lint", str(odd), str(bad)]) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"{odd}{why}"
    assert second.startswith(f"{bad}:6: ")


def test_the_status_is_1_and_each_line_begins_with_file_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Editors and CI find the place by file and line."""
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(POD % "[{}]")
    bad.write_text(POD % "[1]")
    assert main(["lint", str(good)]) == 0
    assert capsys.readouterr().out == "no problems found (pods and templates checked: 1)\n"
    assert main(["lint", str(good), str(bad)]) == 1
    start = f"{bad}:6: Pod/a: metadata.annotations.mooring.dev/interfaces: [0]: 1 is not an object"
    assert capsys.readouterr().out == f"{start}\n"


def test_a_file_that_cannot_be_read_is_named_with_the_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In words of ours, and not as the kernel's number; the status is that of a failure."""
    looping = tmp_path / "looping.yaml"
    looping.symlink_to(looping)
    for file, rule in (
        (tmp_path / "none.yaml", "does not exist"),
        (tmp_path, "is a directory: name the files in it"),
        (looping, "cannot be read: Too many levels of symbolic links"),
    ):
        assert main(["lint", str(file)]) == 1
        assert capsys.readouterr().err == f"error: file {str(file)!r} {rule}\n"


def test_files_are_named_as_for_kubectl_apply(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By -f too, any number of them, and - for standard input."""
    one, other = tmp_path / "one.yaml", tmp_path / "other.yaml"
    for file in (one, other):
        file.write_text(POD % "[1]")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((POD % "[2]").encode())))
    assert main(["lint", str(one), "-f", str(other), "--filename=-"]) == 1
    files = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert files == [str(one), str(other), "-"]


JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  completionMode: Indexed
  completions: 4
  parallelism: 4
  template:
    metadata:
      annotations:
        mooring.dev/group: '%s'
    spec:
      schedulerName: mooring
      restartPolicy: Never
      containers: [{name: c, image: i}]
"""


@pytest.mark.parametrize(
    ("group", "rule"),
    [
        ({"min": 4, "slices": {"size": 2, "within": "rack"}}, ""),
        ({"min": 4, "slices": {"size": 3, "within": "rack"}}, "size 3 does not divide min 4"),
        ({"roles": {"a": 4}, "role_from": "set-by-its-controller"}, ""),
        ({"roles": {"a": 4}}, "fields 'roles' and 'role_from' need each other"),
        ({"roles": {"a": 5}, "role_from": "role"}, "min: 5 exceeds 4, the number of pods that the controller makes"),
    ],
)
def test_slices_and_roles_of_a_group_are_judged(group: dict[str, object], rule: str) -> None:
    """As the scheduler does; the roles give the number that must start."""
    rules = [rule for _, _, rule in said(JOB % json.dumps(group))]
    assert len(rules) == bool(rule)
    assert not rules or rule in rules[0]
