"""The node as the agent sees it: compared with the release in the image, installed or removed, and reported."""

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import structlog

from cli.node.apply import remove_empty
from cli.node.bypass import FILE as BYPASS
from cli.node.errors import NodeError
from cli.node.fleet.agent import State
from cli.node.fleet.enter import HostProcess, Outcome
from cli.node.fleet.flags import folder_of, read_flags
from cli.node.fleet.runtime import Runtime
from cli.node.held import holders
from cli.node.journal import FILE as JOURNAL
from cli.node.look import below, state_of
from cli.node.plan.init_unit import SERVICE as INIT
from cli.node.plan.states import Link
from cli.node.plan.steps import HOME
from mooring.annotations.inventory import ADVERTISER
from mooring.files import read_file, write_shared
from mooring.parsing import decode
from mooring.records import node_install
from mooring.records.node_check import Finding
from mooring.records.node_install import NodeInstall, dump_node_install

PLUGIN = "/etc/mooring/cni.json"
_RUN = "/run/mooring"
# The cluster's cni.json while a node is installed with it.
_NEXT_PLUGIN = f"{_RUN}/cni.json"
_READABLE = 0o644
# What an installation does not mend: pods and GPUs, a shim that fails, what the operator has turned on, and a NIC.
_OTHER_STEPS = frozenset({"containers", "gpus", "shim"})
_OTHER_SUBJECTS = frozenset({BYPASS, INIT})
_SETTLE_S, _LOOK_S = 120.0, 5.0
_log = structlog.get_logger()


@dataclass(slots=True)
class FleetNode:
    """This node. ``root`` is where the host's root folder is mounted; ``install_flags`` are as a person wrote them.

    ``settings`` is the folder with the files of the cluster's ConfigMap: cni.json, or cni.<node>.json for one node.
    """

    name: str
    root: Path
    runtime: Runtime
    settings: Path
    install_flags: str = ""
    removes: bool = False
    process: HostProcess = field(default_factory=HostProcess)
    reported: Callable[[State, str], None] = lambda _state, _text: None
    _last: tuple[State, str] | None = None
    # What the last check has found beside what an installation mends.
    _remark: str = ""

    def target(self) -> str:
        """Return what the fleet moves to: equal on all nodes, and another one for other settings."""
        files = sorted(self.settings.glob("cni*.json")) if self.settings.is_dir() else []
        texts = (self.install_flags, *(f"{path.name}={path.read_text()}" for path in files))
        digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]
        return f"{'remove' if self.removes else 'install'} {self.runtime.release} {digest}"

    async def difference(self) -> str:
        """Return what differs from the desired state, empty if nothing does; a node that cannot be read differs."""
        try:
            if self.removes:
                return "Mooring is installed" if self._is_installed() else ""
            if (present := self._present()) != self.runtime.release:
                return f"release {present!r} is installed, not {self.runtime.release!r}" if present else "not installed"
            if self._plugin_differs():
                return f"{PLUGIN} differs from the cluster's"
            found = await self._check()
            self._remark = _first(found, mendable=False)
            return _first(found, mendable=True)
        except (NodeError, OSError, ValueError) as unreadable:
            return str(unreadable)

    async def obstacle(self) -> str:
        """Return that pods have VFs, which a removal has to await; empty if nothing forbids the change."""
        held = holders(self.root) if self.removes else ()
        return f"waits until pods give back their VFs: {', '.join(held[:3])}" if held else ""

    def is_repair(self) -> bool:
        """Return whether a turn would only remove or repair what is installed."""
        try:
            return self.removes or self._present() == self.runtime.release
        except (NodeError, OSError):
            return False

    async def change(self) -> str:
        """Install or remove; return why that failed."""
        try:
            return await (self._remove() if self.removes else self._install())
        except (NodeError, OSError, ValueError) as error:
            return str(error)

    async def report(self, state: State, text: str) -> None:
        """Write the state where the advertiser reads it, if it has changed."""
        text = text or (self._remark if state == "done" else "")
        self.reported(state, text)
        if self._last == (state, text):
            return
        _log.info("node", state=state, reason=text)
        words: dict[State, node_install.Phase] = {"waiting": "waiting", "working": "working", "failed": "failed"}
        done: node_install.Phase = "removed" if self.removes else "installed"
        record = NodeInstall(datetime.now(UTC), words.get(state, done), self.runtime.release, text)
        try:
            write_shared(below(self.root, f"{_RUN}/{node_install.NAME}"), dump_node_install(record), _READABLE)
        except OSError as error:
            _log.warning("state cannot be written for the advertiser", reason=str(error))
            return
        self._last = state, text

    async def _install(self) -> str:
        flags = read_flags(self.install_flags)
        command = "install" if self._present() in (None, self.runtime.release) else "upgrade"
        with self._next_plugin() as plugin:
            ended = await self._mooring_node(command, *plugin, *flags)
        if ended.status != 0:
            return _why(ended, command)
        self._write_plugin()
        return await self._settled()

    async def _settled(self) -> str:
        """Wait until the check is clean; return its first finding if it does not become so."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _SETTLE_S
        while finding := _first(await self._check(), mendable=True):
            if loop.time() > end:
                return finding
            await asyncio.sleep(_LOOK_S)
        return ""

    async def _remove(self) -> str:
        ended = await self._mooring_node("remove")
        if ended.status != 0:
            return _why(ended, "remove")
        if self._wanted_plugin() is not None and not self._plugin_differs():
            (plugin := below(self.root, PLUGIN)).unlink(missing_ok=True)
            remove_empty(plugin.parent)
        return ""

    async def _check(self) -> Sequence[Finding]:
        """Return the findings of `mooring-node check`; raise ValueError if it printed none.

        The advertiser's version is none of the node's: its DaemonSet is upgraded after the nodes.
        With the flags it also finds what they change on the node, or what contradicts them there.
        """
        ended = await self._mooring_node("check", *read_flags(self.install_flags), "--output", "json", quiet=True)
        try:
            found = [Finding(**each) for each in decode(ended.output)["findings"]]
        except (ValueError, KeyError, TypeError) as unreadable:
            raise ValueError(_why(ended, "check")) from unreadable
        return [finding for finding in found if finding.subject != ADVERTISER]

    async def _mooring_node(self, *words: str, quiet: bool = False) -> Outcome:
        command = self.runtime.mooring_node((*words, "--node-name", self.name))
        return await self.process.run(command, (lambda _: None) if quiet else _say)

    def _is_installed(self) -> bool:
        current = state_of(self.root, f"{HOME}/current")
        return below(self.root, JOURNAL).exists() or isinstance(current, Link)

    def _present(self) -> str | None:
        """Return the name of the release that is the current one on the host."""
        link = state_of(self.root, f"{folder_of(read_flags(self.install_flags))}/current")
        return Path(link.target).name if isinstance(link, Link) else None

    def _wanted_plugin(self) -> str | None:
        own, common = self.settings / f"cni.{self.name}.json", self.settings / "cni.json"
        return (own if own.exists() else common).read_text() if own.exists() or common.exists() else None

    def _plugin_differs(self) -> bool:
        wanted = self._wanted_plugin()
        return wanted is not None and read_file(below(self.root, PLUGIN)) != wanted

    @contextmanager
    def _next_plugin(self) -> Iterator[Sequence[str]]:
        """Yield the flags that install with the cluster's cni.json, before it replaces the node's."""
        if not self._plugin_differs():
            yield ()
            return
        path = below(self.root, _NEXT_PLUGIN)
        _write(path, self._wanted_plugin() or "")
        try:
            yield "--plugin", _NEXT_PLUGIN
        finally:
            path.unlink(missing_ok=True)

    def _write_plugin(self) -> None:
        if self._plugin_differs() and (wanted := self._wanted_plugin()) is not None:
            _write(below(self.root, PLUGIN), wanted)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    write_shared(path, text, _READABLE)


def _first(findings: Sequence[Finding], *, mendable: bool) -> str:
    """Return the first finding that an installation may mend or, if not ``mendable``, that it does not mend."""
    for finding in findings:
        if mendable == (finding.step not in _OTHER_STEPS and finding.subject not in _OTHER_SUBJECTS):
            return f"{finding.subject}: {finding.found}" if finding.subject else finding.found
    return ""


def _why(ended: Outcome, command: str) -> str:
    last = (ended.errors or ended.output).strip().splitlines()[-1:]
    return f"mooring-node {command} ended with {ended.status}: {''.join(last).removeprefix('mooring-node: ')}"


def _say(line: str) -> None:
    print(line, flush=True)
