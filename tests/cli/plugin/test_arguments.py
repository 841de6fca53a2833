"""The command line of `kubectl mooring`: flags before and after the command, and what is wrong."""

import re

import pytest

from cli.plugin.arguments import Arguments, ClusterFlags, ConnectivityFlags, OutputFlags, Selection, parse
from cli.plugin.command_line.flag_values import Subject

LAB, TRAIN = ClusterFlags(context="lab"), Selection(namespace="train")


def test_without_a_command_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """As of kubectl: on stdout, and it is no error."""
    with pytest.raises(SystemExit) as ended:
        parse([])
    assert ended.value.code == 0
    assert re.search(r"^ +explain +why a pod, group or job", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("noodles", 'unknown command "noodles" for "kubectl mooring"'),
        ("nodes --why", "unknown flag: --why"),
        ("nodes --why=x n1", "unknown flag: --why"),
        ("lint pod.yaml -R", "unknown shorthand flag: 'R' in -R"),
        ("top n1", "extra arguments: n1"),
        ("nodes -o", "flag needs an argument: --output"),
        ("nodes --out json", "unknown flag: --out"),
        ("lint --scheduler default-scheduler", "must specify one of -f or FILE"),
        ("pods a -A", "a resource cannot be retrieved by name across all namespaces"),
        ("nodes n1 -l a=b", "name cannot be provided when a selector is specified"),
        ("groups g -w", "--watch: groups are watched as a list, without NAME"),
        ("top -o name", "output format 'name': only nodes, pods and groups have names"),
        ("pods pod/a node/b", "argument 'node/b': must be NAME or pod/NAME"),
        ("explain node/a", "argument 'node/a': must be NAME, pod/NAME, group/NAME or job/NAME"),
        ("explain a?watch=1", "name 'a?watch=1': must be at most 253 of a-z 0-9 . -"),
        ("top --most -1", "number '-1': must be 0 or more"),
        (
            "nodes -o xml",
            "invalid argument for \"-o, --output\" flag: output format 'xml': allowed formats are: "
            "table,wide,name,json,yaml,jsonpath=TEMPLATE",
        ),
    ],
)
def test_wrong_usage_is_reported_in_kubectls_words(line: str, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With status 1, and where to read on."""
    with pytest.raises(SystemExit) as ended:
        parse(line.split())
    assert ended.value.code == 1
    out, err = capsys.readouterr()
    first, second = err.splitlines()
    assert (out, first.removeprefix("error: ").removeprefix('invalid argument for "--most" flag: ')) == ("", error)
    assert re.fullmatch(r"See 'kubectl mooring( \w+)? --help' for usage\.", second)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("groups", Arguments("groups")),
        ("--context lab -n train groups", Arguments("groups", LAB, selection=TRAIN)),
        ("groups --context lab -n train", Arguments("groups", LAB, selection=TRAIN)),
        ("-n train groups -n other", Arguments("groups", selection=Selection("other"))),
        ("-A -o json pods", Arguments("pods", output=OutputFlags("json"), selection=Selection(all_namespaces=True))),
        ("--request-timeout 1m nodes", Arguments("nodes", ClusterFlags(request_timeout=60.0))),
        (
            "--as jane --as-group a --as-group b nodes",
            Arguments("nodes", ClusterFlags("", "", 30.0, "jane", ("a", "b"))),
        ),
        (
            "-n train connectivity test --image i",
            Arguments("connectivity", selection=TRAIN, connectivity=ConnectivityFlags(image="i")),
        ),
        (
            "nodes n1 -o wide node/n2",
            Arguments("nodes", output=OutputFlags("wide"), selection=Selection(names=("n1", "n2"))),
        ),
        (
            "pods pod/a --no-headers",
            Arguments("pods", output=OutputFlags(headers=False), selection=Selection(names=("a",))),
        ),
        (
            "pods -l a=b -o jsonpath={.x}",
            Arguments("pods", output=OutputFlags("jsonpath", "{.x}"), selection=Selection(selector="a=b")),
        ),
        ("explain jobs/x", Arguments("explain", subject=Subject("job", "x"))),
        ("explain x", Arguments("explain", subject=Subject("pod", "x"))),
        ("lint a -o json b", Arguments("lint", output=OutputFlags("json"), files=("a", "b"))),
    ],
)
def test_flags_of_kubectl_may_come_before_the_command(line: str, expected: Arguments) -> None:
    """As of `kubectl get`; of two, the one after the command counts."""
    assert parse(line.split()) == expected
