"""The flags of each command, as argparse takes them."""

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from cli.plugin.command_line import flag_values
from mooring import names
from mooring.program.version_flag import add_version_flag

PROGRAM = "kubectl mooring"
_ABOUT = "Show which pods hold which SR-IOV VFs in a cluster, and why."
_ABOUT_DRAIN = "No new pod gets a drained PF or VF. Running pods keep their VFs: no pod is evicted."
_ABOUT_REPORT = (
    "Write nodes, pods, groups, GPUs and findings as one page that needs no server: "
    "kubectl mooring report > cluster.html"
)
_ABOUT_UI = (
    "Serve the page of `report` on 127.0.0.1 and print its address, which contains a secret. The page shows what your "
    "kubeconfig may read and changes nothing. Ctrl-C ends it."
)
_ABOUT_BUNDLE = (
    "Write what a bug report needs into one archive: what the commands read, and the logs and metrics of Mooring's "
    "pods. Secrets and environment variables are left out. Read it with --from."
)
_ABOUT_ASSESS = (
    "Report what goes wrong with the VFs of a cluster, and what Mooring would change. It only reads, and the cluster "
    "needs nothing of Mooring."
)
SHELLS = ("bash", "zsh", "fish")
_Types = Mapping[str, Callable[[str], str]]
# What `NAME…` is of the commands that take names.
NAME_TYPES: _Types = {
    "nodes": flag_values.name_of("node"),
    "gpus": flag_values.name_of("node"),
    "pods": flag_values.name_of("pod"),
    "groups": flag_values.name_of("group"),
    "when": flag_values.name_of("group"),
}


class Parser(argparse.ArgumentParser):
    """Reports wrong usage in kubectl's words, with status 1, and takes no abbreviations of flags."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**({"allow_abbrev": False} | options))

    def error(self, message: str) -> NoReturn:
        print(f"error: {_in_kubectls_words(message)}\nSee '{self.prog} --help' for usage.", file=sys.stderr)
        self.exit(1)


_UNKNOWN_COMMAND = re.compile(r"argument COMMAND: invalid choice: '(.*)' \(choose")
_NO_VALUE = re.compile(r"argument (-\S+): expected one argument")
_WRONG_VALUE = re.compile(r"argument (-\S+): (.*)", re.DOTALL)


def _in_kubectls_words(message: str) -> str:
    """Return a message of argparse as cobra, which kubectl uses, would write it."""
    if match := _UNKNOWN_COMMAND.match(message):
        return f'unknown command "{match[1]}" for "{PROGRAM}"'
    if match := _NO_VALUE.match(message):
        return f"flag needs an argument: {match[1].rpartition('/')[2]}"
    if match := _WRONG_VALUE.match(message):
        return f'invalid argument for "{match[1].replace("/", ", ")}" flag: {match[2]}'
    return re.sub(r"^argument \S+: ", "", message)


@dataclass(frozen=True, slots=True)
class Parsers:
    """The parser of the whole command line, and that of each command."""

    root: Parser
    commands: Mapping[str, argparse.ArgumentParser]
    name_types: _Types


def make_parsers() -> Parsers:
    """Return the parsers of the command line."""
    shared, cluster, scoped, listed, bundled = _shared(), _cluster(), _scoped(), _listed(), _bundled()
    # As other plugins of kubectl take them, these flags may come before the command too.
    root = Parser(prog=PROGRAM, parents=[shared, cluster, scoped])
    root.description = _ABOUT
    add_version_flag(root)
    # Without `prog` argparse would format a usage here, at each start.
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND", prog=PROGRAM)
    add, of_all, of_pods = (
        commands.add_parser,
        [shared, cluster, listed, bundled],
        [shared, cluster, scoped, listed, bundled],
    )
    _add_names(add("nodes", parents=of_all, help="free, used and unusable VFs of each PF, and the bandwidth left"))
    _add_names(add("pods", parents=of_pods, help="the VFs of each pod, and the pods that wait for some"))
    _add_names(add("gpus", parents=of_all, help="the GPUs of each node, their pods, and the VF beside each"))
    _add_groups(add("groups", parents=of_pods, help="groups of pods: bound, waiting, and the unplaced member"))
    one, read = [shared, cluster], [shared, cluster, bundled]
    _add_explain(add("explain", parents=[*read, scoped], help="why a pod, group or job has its nodes, or has none"))
    _add_groups(add("when", parents=[*read, scoped], help="when waiting groups start, and after what"))
    _add_manifests(add("fits", parents=[*read, scoped], help="whether a manifest's pods would start now"))
    _add_top(add("top", parents=read, help="the bandwidth reserved, and the pods with most of it"))
    _add_status(add("status", parents=read, help="one line for each check; status 1 if one fails"))
    _add_checks(add("doctor", parents=read, help="the checks of status, with all findings and versions"))
    _add_report(add("report", parents=[cluster, bundled], help="the whole cluster as one HTML page, or as JSON"))
    _add_ui(add("ui", parents=[cluster], help="the same page at an address of this machine; it follows all changes"))
    _add_drain(add("drain", parents=one, help="take PFs or VFs of a node out of scheduling; evicts no pod"))
    _add_drain_scope(add("undrain", parents=one, help="give drained PFs or VFs back to scheduling"))
    _add_support_bundle(
        add("support-bundle", parents=[cluster], help="write an archive for a bug report, without secrets")
    )
    _add_assess(add("assess", parents=read, help="what is wrong with a cluster's VFs; needs no Mooring"))
    _add_connectivity(add("connectivity", parents=one, help="measure the networks between two nodes, with two pods"))
    _add_lint(add("lint", parents=[shared], help="what the scheduler would reject in a manifest; status 1 if anything"))
    _add_version(add("version", parents=one, help="the versions of this program and of those in the cluster"))
    _add_completion(add("completion", help="print a script that completes `kubectl-mooring` in a shell"))
    for choice in commands._choices_actions:
        parser = commands.choices[choice.dest]
        parser.description = parser.description or choice.help
    return Parsers(root, commands.choices, NAME_TYPES)


def _add_names(command: argparse.ArgumentParser) -> None:
    kind = command.prog.rpartition(" ")[2]
    command.add_argument("names", nargs="*", type=NAME_TYPES[kind], metavar="NAME", help="show these alone")


def _add_groups(groups: argparse.ArgumentParser) -> None:
    _add_names(groups)
    _add_scheduler(groups, "schedulerName of the pods that form groups")


def _add_explain(explain: argparse.ArgumentParser) -> None:
    explain.add_argument("subject", type=flag_values.subject, metavar="POD|group/NAME|job/NAME")
    explain.add_argument("--recompute", action="store_true", help="decide again about waiting pods; name every node")
    _add_scheduler(explain, "schedulerName of the pods that form groups")


def _add_top(top: argparse.ArgumentParser) -> None:
    top.add_argument("--most", type=flag_values.count, default=10, metavar="N", help="rows of each table (default 10)")


def _add_status(status: argparse.ArgumentParser) -> None:
    status.add_argument("--wait", action="store_true", help="repeat until no check fails, or --timeout is over")
    status.add_argument(
        "--timeout", type=flag_values.seconds, default=300.0, metavar="TIME", help="the end of --wait (default 300s)"
    )
    _add_checks(status)


def _add_checks(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--without-guard", action="store_true", help="missing admission policies are a warning, not an error"
    )
    _add_scheduler(command, "schedulerName whose scheduler and groups are checked")


def _add_report(report: argparse.ArgumentParser) -> None:
    report.description = _ABOUT_REPORT
    report.add_argument(
        "-o",
        "--output",
        type=flag_values.report_output,
        default=argparse.SUPPRESS,
        metavar="FORMAT",
        help="html, json, yaml or jsonpath=TEMPLATE (default html)",
    )
    _add_checks(report)


def _add_ui(ui: argparse.ArgumentParser) -> None:
    ui.description = _ABOUT_UI
    ui.add_argument(
        "--port", type=flag_values.port, default=0, metavar="PORT", help="on 127.0.0.1 (default: one that is free)"
    )
    _add_checks(ui)


def _add_drain(drain: argparse.ArgumentParser) -> None:
    drain.description = _ABOUT_DRAIN
    _add_drain_scope(drain)
    drain.add_argument("--reason", type=flag_values.reason, metavar="TEXT", help="shown by `nodes` and `explain`")


def _add_drain_scope(command: argparse.ArgumentParser) -> None:
    command.add_argument("node", type=flag_values.name_of("node"), metavar="NODE")
    command.add_argument(
        "--pf",
        dest="pfs",
        type=flag_values.text_list,
        default=(),
        metavar="PF,…",
        help="these PFs (default: all PFs of the node)",
    )
    command.add_argument(
        "--vf", dest="vfs", default="", metavar="VFS", help="VFs only: 3-5,7 of one --pf, or their PCI addresses"
    )
    command.add_argument(
        "--dry-run",
        choices=("none", "client", "server"),
        default="none",
        help="show what would change; server lets the API server check it",
    )


def _add_support_bundle(bundle: argparse.ArgumentParser) -> None:
    bundle.description = _ABOUT_BUNDLE
    bundle.add_argument(
        "-o",
        "--output",
        dest="file",
        default="",
        metavar="FILE.tar.gz",
        help="(default mooring-support-TIME.tar.gz in this folder)",
    )
    _add_scheduler(bundle, "schedulerName whose Lease is read")


def _add_assess(assess: argparse.ArgumentParser) -> None:
    assess.description = _ABOUT_ASSESS
    add = assess.add_argument
    add("--nodes", dest="nodes_folder", default="", metavar="DIR", help="a folder of captures: NODE.tar.gz")
    add("--html", default="", metavar="FILE.html", help="write the report as one page that loads nothing")
    add("--share", default="", metavar="FILE.tar.gz", help="write what was read, without names and addresses, and end")
    add("--rack", default="", metavar="LABEL", help="the label of nodes that names their rack (default: a usual one)")
    add("--print-job", dest="image", default="", metavar="IMAGE", help="print Jobs that capture each node, and end")
    add("-n", "--namespace", type=flag_values.name_or_empty, default=argparse.SUPPRESS, help="of these Jobs")


def _add_manifests(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("files", nargs="*", action="extend", metavar="FILE", help="YAML or JSON; - is standard input")
    add("-f", "--filename", dest="files", action="append", metavar="FILE", help="the same, as in kubectl")


def _add_lint(lint: argparse.ArgumentParser) -> None:
    _add_manifests(lint)
    _add_scheduler(lint, "a schedulerName that provides interfaces")


def _add_version(version: argparse.ArgumentParser) -> None:
    version.add_argument("--client", action="store_true", help="the version of this program alone; asks no server")


def _add_completion(completion: argparse.ArgumentParser) -> None:
    completion.add_argument("shell", choices=SHELLS)


def _add_scheduler(command: argparse.ArgumentParser, subject: str) -> None:
    command.add_argument(
        "--scheduler",
        action="append",
        metavar="NAME",
        help=f"{subject}; may be repeated (default {names.SCHEDULER_NAME})",
    )


def _add_connectivity(connectivity: argparse.ArgumentParser) -> None:
    add = connectivity.add_argument
    add("action", choices=("test",), help="start two pods, measure each pair of networks, delete the pods")
    add("--image", required=True, metavar="IMAGE", help="an image with sh, awk and ib_write_bw (perftest)")
    add("-n", "--namespace", type=flag_values.name_or_empty, default=argparse.SUPPRESS, metavar="NAME")
    add(
        "--nodes",
        type=flag_values.name_list,
        default=(),
        metavar="A,B",
        help="(default: the two that share most networks with a free VF)",
    )
    add(
        "--networks",
        type=flag_values.text_list,
        default=(),
        metavar="N,…",
        help="(default: all with a free VF on both nodes)",
    )
    add("--across", action="store_true", help="measure each network with every other one too")
    add("--seconds", type=flag_values.positive, default=5, metavar="S", help="time of one measurement (default 5)")
    add("--start", type=flag_values.seconds, default=120.0, metavar="TIME", help="time to start a pod (default 120s)")
    add("--keep", action="store_true", help="do not delete the pods")
    add("--scheduler", action="append", metavar="NAME", help=f"the pods' schedulerName ({names.SCHEDULER_NAME})")


def _shared() -> Parser:
    shared = _flags()
    shared.add_argument(
        "-o",
        "--output",
        type=flag_values.output,
        metavar="FORMAT",
        help="table, wide, name, json, yaml or jsonpath=TEMPLATE (default table)",
    )
    shared.add_argument("--no-headers", dest="headers", action="store_false", default=argparse.SUPPRESS)
    shared.add_argument("--colour", choices=("auto", "always", "never"), help="(default auto)")
    return shared


def _cluster() -> Parser:
    cluster = _flags()
    cluster.add_argument("--kubeconfig", metavar="FILE")
    cluster.add_argument("--context", metavar="NAME")
    cluster.add_argument("--request-timeout", type=flag_values.seconds, metavar="TIME", help="(default 30s)")
    cluster.add_argument("--as", dest="as_user", metavar="USER", help="impersonate a user or service account")
    cluster.add_argument(
        "--as-group", dest="as_groups", action="append", metavar="GROUP", help="and a group; may be repeated"
    )
    cluster.add_argument("--as-uid", metavar="UID")
    return cluster


def _scoped() -> Parser:
    scoped = _flags()
    scoped.add_argument("-n", "--namespace", type=flag_values.name_or_empty, metavar="NAME")
    scoped.add_argument(
        "-A", "--all-namespaces", action="store_true", default=argparse.SUPPRESS, help="show all namespaces"
    )
    return scoped


def _listed() -> Parser:
    """Return the flags of commands that show a list."""
    listed = Parser(add_help=False)
    listed.add_argument("-w", "--watch", action="store_true", help="then show each change, until interrupted")
    listed.add_argument(
        "-l", "--selector", default="", metavar="LABELS", help="labels of the nodes or pods, as in kubectl"
    )
    listed.add_argument("--sort-by", default="", metavar="COLUMN|JSONPATH", help="order of the rows")
    return listed


def _bundled() -> Parser:
    """Return the flag of commands that only read."""
    bundled = Parser(add_help=False)
    bundled.add_argument(
        "--from", dest="bundle", default="", metavar="BUNDLE", help="a file of support-bundle, in place of the cluster"
    )
    return bundled


def _flags() -> Parser:
    """Return a parser whose flags have no defaults: where they follow the command, they would undo those before it."""
    return Parser(add_help=False, argument_default=argparse.SUPPRESS)
