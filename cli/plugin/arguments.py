"""The command line of `kubectl mooring`, with kubectl's own flags."""

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mooring import names
from mooring.annotations.drain import LONGEST_REASON
from mooring.program.version_flag import add_version_flag

PROGRAM = "kubectl mooring"
OUTPUTS = ("table", "wide", "json", "yaml")


@dataclass(frozen=True, slots=True)
class Arguments:
    """What to show, of which cluster, and how; an empty ``namespace`` is the context's own."""

    command: str
    output: str = "table"
    colour: str = "auto"
    kubeconfig: str = ""
    context: str = ""
    request_timeout: float = 30.0
    namespace: str = ""
    all_namespaces: bool = False
    pod: str = ""
    group: str = ""
    recompute: bool = False
    watch: bool = False
    most: int = 10
    without_guard: bool = False
    wait: bool = False
    timeout: float = 300.0
    files: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    image: str = ""
    seconds: int = 5
    start: float = 120.0
    across: bool = False
    keep: bool = False
    node: str = ""
    pfs: tuple[str, ...] = ()
    vfs: str = ""
    reason: str | None = None
    dry_run: Literal["none", "client", "server"] = "none"
    scheduler: tuple[str, ...] = (names.SCHEDULER_NAME,)


def parse(argv: Sequence[str]) -> Arguments:
    """Parse the command line; exit with status 2 and the usage if it is wrong."""
    parser, commands = _parser()
    if not argv:
        parser.print_help(sys.stderr)
        parser.exit(2)
    known, strange = parser.parse_known_args(argv)
    if strange:
        # By `parse_args` the usage would be that of `kubectl mooring`, without the command's own flags.
        commands[known.command].error(f"unrecognized arguments: {' '.join(strange)}")
    given = vars(known)
    if known.command == "lint" and not known.files:
        commands["lint"].error("no FILE is named, and none by -f")
    if given.get("watch") and given.get("group"):
        parser.error("argument -w/--watch: groups are watched as a list, without NAME")
    if "about" in given:
        kind, name = given.pop("about")
        given[kind] = name
    given.pop("action", None)
    for several in ("files", "scheduler"):
        if several in given:
            given[several] = tuple(given[several] or (names.SCHEDULER_NAME,))
    return Arguments(**given)


def _parser() -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """Return the parser, and that of each command."""
    shared, cluster, scoped, watched = _shared(), _cluster(), _scoped(), _watched()
    # As other plugins of kubectl take them, these flags may come before the command too.
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Show who has which SR-IOV VFs in a cluster, and why.",
        parents=[shared, cluster, scoped],
    )
    add_version_flag(parser)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add = commands.add_parser
    add("nodes", parents=[shared, cluster, watched], help="VFs free, used and out of each PF, bandwidth left")
    add("pods", parents=[shared, cluster, scoped, watched], help="who holds which VFs, and who waits for some")
    add("gpus", parents=[shared, cluster, watched], help="each node's GPUs, who has them, and the VF beside each")
    _add_explain(
        add("explain", parents=[shared, cluster, scoped], help="why this node and these VFs, or why not each node")
    )
    _add_groups(
        add(
            "groups",
            parents=[shared, cluster, scoped, watched],
            help="groups of pods: bound, waiting, and which member cannot be placed",
        )
    )
    _add_top(add("top", parents=[shared, cluster], help="bandwidth reserved, and the pods with most of it"))
    _add_status(add("status", parents=[shared, cluster], help="is all well? one line a check; status 1 if not"))
    _add_checks(
        add("doctor", parents=[shared, cluster], help="the checks of status with all findings, programs and versions")
    )
    _add_drain(
        add("drain", parents=[shared, cluster], help="take PFs or VFs of a node out of scheduling; evicts no pod")
    )
    _add_drain_scope(add("undrain", parents=[shared, cluster], help="give drained PFs or VFs back to scheduling"))
    _add_connectivity(
        add("connectivity", parents=[shared, cluster], help="measure the rails between two nodes, by two pods")
    )
    _add_lint(add("lint", parents=[shared], help="what of a manifest would be refused; status 1 if anything"))
    return parser, commands.choices


def _add_explain(explain: argparse.ArgumentParser) -> None:
    explain.add_argument("about", type=_subject, metavar="POD|group/NAME")
    explain.add_argument("--recompute", action="store_true", help="decide again about what waits, and name every node")
    _add_scheduler(explain, "schedulerName of the pods that form groups")


def _add_groups(groups: argparse.ArgumentParser) -> None:
    groups.add_argument(
        "group", nargs="?", type=_name_or_empty, default="", metavar="NAME", help="one group, with its members"
    )
    _add_scheduler(groups, "schedulerName of the pods that form groups")


def _add_top(top: argparse.ArgumentParser) -> None:
    top.add_argument("--most", type=_count, default=10, metavar="N", help="nodes, PFs and pods to show (default 10)")


def _add_status(status: argparse.ArgumentParser) -> None:
    status.add_argument("--wait", action="store_true", help="repeat until all is well, or --timeout is over")
    status.add_argument(
        "--timeout", type=_seconds, default=300.0, metavar="S", help="seconds that --wait waits (default 300)"
    )
    _add_checks(status)


def _add_checks(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--without-guard", action="store_true", help="admission policies that are missing are a warning, not an error"
    )
    _add_scheduler(command, "schedulerName whose scheduler and groups are checked")


def _add_drain(drain: argparse.ArgumentParser) -> None:
    drain.description = "No new pod gets a drained PF or VF. Running pods keep their VFs: no pod is evicted."
    _add_drain_scope(drain)
    drain.add_argument(
        "--reason", type=_reason, metavar="TEXT", help="why, for those who see it in `nodes` and `explain`"
    )


def _add_drain_scope(command: argparse.ArgumentParser) -> None:
    command.add_argument("node", type=_name, metavar="NODE")
    command.add_argument(
        "--pf", dest="pfs", type=_texts, default=(), metavar="PF,…", help="these PFs (default: all PFs of the node)"
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


def _add_lint(lint: argparse.ArgumentParser) -> None:
    lint.add_argument("files", nargs="*", action="extend", metavar="FILE", help="YAML or JSON; - is standard input")
    lint.add_argument("-f", "--filename", dest="files", action="append", metavar="FILE", help="the same, as of kubectl")
    _add_scheduler(lint, "a schedulerName that gives interfaces")


def _add_scheduler(command: argparse.ArgumentParser, subject: str) -> None:
    command.add_argument(
        "--scheduler",
        action="append",
        metavar="NAME",
        help=f"{subject}; may be repeated (default {names.SCHEDULER_NAME})",
    )


def _add_connectivity(connectivity: argparse.ArgumentParser) -> None:
    connectivity.add_argument(
        "action", choices=("test",), help="start two pods, measure each pair of rails, delete them"
    )
    connectivity.add_argument(
        "--image", required=True, metavar="IMAGE", help="an image with sh, awk and ib_write_bw (perftest)"
    )
    connectivity.add_argument("-n", "--namespace", type=_name_or_empty, default=argparse.SUPPRESS, metavar="NAME")
    connectivity.add_argument(
        "--nodes", type=_names, default=(), metavar="A,B", help="(default: two that share most networks with a free VF)"
    )
    connectivity.add_argument(
        "--networks", type=_texts, default=(), metavar="N,…", help="the rails (default: all that both nodes have free)"
    )
    connectivity.add_argument(
        "--across", action="store_true", help="each rail with every other too, not only with itself"
    )
    connectivity.add_argument(
        "--seconds", type=_positive, default=5, metavar="S", help="of one measurement (default 5)"
    )
    connectivity.add_argument(
        "--start", type=_seconds, default=120.0, metavar="S", help="a pod may take to start (120)"
    )
    connectivity.add_argument("--keep", action="store_true", help="leave the pods, to look at")
    connectivity.add_argument(
        "--scheduler", action="append", metavar="NAME", help=f"their schedulerName (default {names.SCHEDULER_NAME})"
    )


def _reason(text: str) -> str:
    """Parse a reason, which people read in a table's cell."""
    if len(text) > LONGEST_REASON or not text.isprintable():
        raise argparse.ArgumentTypeError(f"a reason is one line of at most {LONGEST_REASON} characters")
    return text


def _texts(text: str) -> tuple[str, ...]:
    """Parse a list with commas."""
    return tuple(dict.fromkeys(filter(None, text.split(","))))


def _names(text: str) -> tuple[str, ...]:
    """Parse nodes' names."""
    return tuple(_name(one) for one in _texts(text))


def _positive(text: str) -> int:
    """Parse a number from 1 up."""
    if not _count(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 up")
    return int(text)


def _name(text: str) -> str:
    """Parse an object's name, which becomes a part of a path."""
    if not names.is_subdomain(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name (at most 253 of a-z 0-9 . -)")
    return text


def _subject(text: str) -> tuple[str, str]:
    """Parse what is explained: a pod's name, or as kubectl has it pod/NAME or group/NAME."""
    kind, separator, name = text.rpartition("/")
    if separator and kind not in ("pod", "group"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither NAME, pod/NAME nor group/NAME")
    return kind or "pod", _name(name)


def _name_or_empty(text: str) -> str:
    """Parse a name that may be missing: an empty namespace is the context's own, as for kubectl."""
    return _name(text) if text else ""


def _seconds(text: str) -> float:
    """Parse a time above 0."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


def _count(text: str) -> int:
    """Parse a number from 0 up; argparse reports other texts."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 up")
    return int(text)


def _shared() -> argparse.ArgumentParser:
    shared = _flags()
    shared.add_argument("-o", "--output", choices=OUTPUTS, help="(default table)")
    shared.add_argument("--colour", choices=("auto", "always", "never"), help="(default auto)")
    return shared


def _cluster() -> argparse.ArgumentParser:
    cluster = _flags()
    cluster.add_argument("--kubeconfig", metavar="FILE")
    cluster.add_argument("--context", metavar="NAME")
    cluster.add_argument("--request-timeout", type=_seconds, metavar="S", help="seconds (default 30)")
    return cluster


def _scoped() -> argparse.ArgumentParser:
    scoped = _flags()
    scoped.add_argument("-n", "--namespace", type=_name_or_empty, metavar="NAME")
    scoped.add_argument(
        "-A", "--all-namespaces", action="store_true", default=argparse.SUPPRESS, help="pods of all namespaces"
    )
    return scoped


def _flags() -> argparse.ArgumentParser:
    """Return a parser whose flags have no defaults: where they follow the command, they would undo those before it."""
    return argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)


def _watched() -> argparse.ArgumentParser:
    watched = argparse.ArgumentParser(add_help=False)
    watched.add_argument("-w", "--watch", action="store_true", help="then show each change, until interrupted")
    return watched
