"""The command line of `kubectl mooring` as values, with kubectl's own flags and its words for wrong usage."""

from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar

from cli.plugin.command_line import flag_values
from cli.plugin.command_line.flags import Parsers, make_parsers
from mooring import names

T = TypeVar("T")
# The commands whose answer is a page.
_PAGES = ("report", "ui")


@dataclass(frozen=True, slots=True)
class ClusterFlags:
    """Which API server is asked, and as which user; empty values are the kubeconfig's own."""

    kubeconfig: str = ""
    context: str = ""
    request_timeout: float = 30.0
    as_user: str = ""
    as_groups: tuple[str, ...] = ()
    as_uid: str = ""


@dataclass(frozen=True, slots=True)
class OutputFlags:
    """How an answer is printed; ``template`` is that of the format ``jsonpath``."""

    format: str = "table"
    template: str = ""
    colour: str = "auto"
    headers: bool = True
    sort_by: str = ""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects are shown; an empty ``namespace`` is the context's own, no ``names`` means all."""

    namespace: str = ""
    all_namespaces: bool = False
    names: tuple[str, ...] = ()
    selector: str = ""


@dataclass(frozen=True, slots=True)
class ConnectivityFlags:
    """What `connectivity test` measures: ``seconds`` for each pair; a pod may take ``start`` seconds to start."""

    nodes: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    image: str = ""
    seconds: int = 5
    start: float = 120.0
    across: bool = False
    keep: bool = False


@dataclass(frozen=True, slots=True)
class DrainFlags:
    """What `drain` and `undrain` are about: a node, its PFs (none means all), or VFs of one."""

    node: str = ""
    pfs: tuple[str, ...] = ()
    vfs: str = ""
    reason: str | None = None
    dry_run: Literal["none", "client", "server"] = "none"


@dataclass(frozen=True, slots=True)
class AssessFlags:
    """What `assess` reads beside the API, and prints in place of the report.

    ``html`` is the page and ``share`` the archive without names that are written, ``image`` that of the Jobs whose
    manifests are printed, ``rack`` the label of nodes that names their rack.
    """

    nodes_folder: str = ""
    share: str = ""
    html: str = ""
    rack: str = ""
    image: str = ""


@dataclass(frozen=True, slots=True)
class Arguments:
    """A command, its flags by subject, and those that few commands have."""

    command: str
    cluster: ClusterFlags = field(default=ClusterFlags())
    output: OutputFlags = field(default=OutputFlags())
    selection: Selection = field(default=Selection())
    connectivity: ConnectivityFlags = field(default=ConnectivityFlags())
    drain: DrainFlags = field(default=DrainFlags())
    assess: AssessFlags = field(default=AssessFlags())
    subject: flag_values.Subject = field(default=flag_values.Subject("pod", ""))
    recompute: bool = False
    watch: bool = False
    most: int = 10
    without_guard: bool = False
    wait: bool = False
    timeout: float = 300.0
    files: tuple[str, ...] = ()
    client: bool = False
    bundle: str = ""
    file: str = ""
    shell: str = ""
    port: int = 0
    scheduler: tuple[str, ...] = (names.SCHEDULER_NAME,)


def parse(argv: Sequence[str]) -> Arguments:
    """Parse the command line; exit with status 1 if it is wrong, and print the help if it is empty."""
    parsers = make_parsers()
    if not argv:
        parsers.root.print_help()
        parsers.root.exit(0)
    namespace, extra = parsers.root.parse_known_args(argv)
    given = vars(namespace)
    _take_more_names(parsers, given, extra)
    if given["command"] in _PAGES:
        given.setdefault("output", ("html", ""))
    _check(parsers, given)
    given.pop("action", None)
    if "output" in given:
        given["format"], given["template"] = given.pop("output")
    for several in ("as_groups", "files", "names", "scheduler"):
        if several in given:
            given[several] = tuple(given[several] or ((names.SCHEDULER_NAME,) if several == "scheduler" else ()))
    groups: dict[str, Any] = {
        "cluster": _take(ClusterFlags, given),
        "output": _take(OutputFlags, given),
        "selection": _take(Selection, given),
        "connectivity": _take(ConnectivityFlags, given) if given["command"] == "connectivity" else ConnectivityFlags(),
        "drain": _take(DrainFlags, given),
        "assess": _take(AssessFlags, given),
    }
    return Arguments(**groups, **given)


def _take_more_names(parsers: Parsers, given: dict[str, Any], extra: Sequence[str]) -> None:
    """Take names and files that stand after a flag, which argparse leaves; report all other words."""
    parser = parsers.commands[given["command"]]
    flag = next((text for text in extra if text.startswith("-") and text != "-"), None)
    if flag is not None:
        parser.error(_unknown_flag(flag))
    several = next((name for name in ("names", "files") if name in given), None)
    if extra and several is None:
        parser.error(f"extra arguments: {' '.join(extra)}")
    if several is not None:
        read: Callable[[str], str] = parsers.name_types.get(given["command"], str)
        try:
            given[several] = [*(given[several] or ()), *map(read, extra)]
        except ArgumentTypeError as wrong:
            parser.error(str(wrong))


def _unknown_flag(flag: str) -> str:
    if flag.startswith("--"):
        return f"unknown flag: {flag.partition('=')[0]}"
    return f"unknown shorthand flag: {flag[1]!r} in {flag}"


def _check(parsers: Parsers, given: dict[str, Any]) -> None:
    """Report flags that exclude each other, in kubectl's words where it has some."""
    parser, named = parsers.commands[given["command"]], given.get("names")
    if given["command"] in ("lint", "fits") and not given.get("files"):
        parser.error("must specify one of -f or FILE")
    if named and given.get("selector"):
        parser.error("name cannot be provided when a selector is specified")
    if named and given.get("all_namespaces"):
        parser.error("a resource cannot be retrieved by name across all namespaces")
    if named and given.get("watch") and given["command"] == "groups":
        parser.error("--watch: groups are watched as a list, without NAME")
    if given.get("bundle"):
        live = next((flag for flag in ("watch", "wait", "kubeconfig", "context") if given.get(flag)), "")
        if live:
            parser.error(f"--from: not with --{live}: a bundle is read in place of the cluster")
    kind = given.get("output", ("table", ""))[0]
    if given["command"] in _PAGES and kind not in flag_values.REPORT_FORMATS:
        parser.error(f"output format {kind!r}: {given['command']} has {', '.join(flag_values.REPORT_FORMATS)}")
    if kind == "name" and given["command"] not in ("nodes", "pods", "groups"):
        parser.error("output format 'name': only nodes, pods and groups have names")
    if kind in ("name", "jsonpath") and given.get("watch"):
        parser.error(f"output format {kind!r}: --watch has table, wide, json and yaml")


def _take(kind: Callable[..., T], given: dict[str, Any]) -> T:
    """Remove the fields of one group of flags, and return the group."""
    own = [field_.name for field_ in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: given.pop(name) for name in own if name in given})
