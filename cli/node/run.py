"""Run the steps on a host: forward, with a journal entry before each change; backward after a failure, or to remove."""

import fcntl
import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from cli.node import bypass as bypasses
from cli.node import journal as journals
from cli.node.apply import apply, remove_empty, undo
from cli.node.bypass import Bypass
from cli.node.errors import NodeError
from cli.node.journal import Entries, Journal
from cli.node.kubelet_calls import judge, restart_kubelet
from cli.node.look import below
from cli.node.plan.states import Change, Host, Link, PathChange, ReleaseFolder, undoing
from cli.node.plan.steps import KUBELET, OURS, SERVICES, Choices, Step, steps
from cli.node.site import Site
from mooring.annotations.inventory import CNI, CRI_SHIM
from mooring.folders import record_names
from mooring.nic.pci import is_address
from mooring.records import (
    handed_offer,
    kubelet_call,
    ledger,
    node_check,
    node_offer,
    pod_record,
    sandbox_marks,
    shim_bypass,
)

SHIM = "mooring-cri-shim.service"
# Records of pods and of the VFs that they hold. Empty folders are removed with the installation.
_STATE, _PODS, _VFS = "/var/lib/mooring", "/var/lib/mooring/pods", "/var/lib/mooring/vfs"
_SET_ASIDE, _IN_DOUBT = f"{_STATE}/{node_offer.SET_ASIDE_FOLDER}", f"{_STATE}/{ledger.IN_DOUBT}"
_RUN, _VERSIONS = "/run/mooring", "/run/mooring/version"


def planned(host: Host, choices: Choices) -> Iterator[tuple[Step, Sequence[Change]]]:
    """Yield each step with the changes that it would make on the host."""
    for step in steps(host, choices):
        yield step, step.plan(host)


def planned_removal(site: Site, choices: Choices, *, whole: bool) -> Iterator[tuple[str, str]]:
    """Yield step and description of each action of a removal or, if not ``whole``, of an undo of a killed run."""
    journal = journals.read(site.root) or Journal()
    changes = journal.whole() if whole else journal.open or ()
    for step in reversed(steps(site.look(choices), choices)):
        if own := [change for name, change in changes if name == step.name]:
            yield from ((step.name, f"run {' '.join(command)}") for command in step.leaving)
            yield from ((step.name, undoing(change)) for change in reversed(own))
            yield from ((step.name, f"run {' '.join(command)}") for command in step.left)


def install(site: Site, choices: Choices) -> bool:
    """Install ``choices`` on the host, or continue a run that was killed; return whether anything was changed.

    On an error undo all changes of the run, and raise the error.
    """
    with _alone(site.root):
        journal = journals.read(site.root) or Journal()
        plan = steps(site.look(choices), choices)
        was_killed = journal.open is not None
        # Fail before the first change if a setting is contradicted, or the kubelet cannot be configured.
        for step in plan:
            if step.name in (SERVICES, KUBELET):
                step.plan(site.look(choices))
        try:
            for step in plan:
                journal = _forward(site, choices, step, journal)
        except (NodeError, OSError, subprocess.SubprocessError, KeyboardInterrupt):
            site.say("rollback", "undoing what this run has changed")
            _backward(site, journals.read(site.root) or Journal(), plan, choices)
            raise
        if journal.open is not None:
            journals.write(site.root, _pruned(site, choices, journal.ended(), journal.open))
        return was_killed or journal.open is not None


def take_back(site: Site, choices: Choices) -> bool:
    """Undo a run that was killed; return whether one was found."""
    with _alone(site.root):
        journal = journals.read(site.root)
        if journal is None or journal.open is None:
            _leave(site.root, journal or Journal(), removes=False)
            return False
        _backward(site, journal, steps(site.look(choices), choices), choices)
        if (bypass := bypasses.read(site.root)) is not None and bypass.state == "turning off":
            bypasses.write(site.root, replace(bypass, state="on"))
        return True


def remove(site: Site, choices: Choices) -> bool:
    """Undo all runs; return whether anything was installed."""
    with _alone(site.root):
        journal = journals.read(site.root)
        if journal is None:
            _leave(site.root, Journal())
            return False
        _backward(site, Journal((), journal.whole()), steps(site.look(choices), choices), choices, removes=True)
    return True


def planned_bypass(site: Site, choices: Choices, *, on: bool) -> Sequence[str]:
    """Describe what turning the bypass on or off would do."""
    step, journal = _kubelet_step(site, choices), journals.read(site.root) or Journal()
    if on:
        ours = [change for name, change in reversed(journal.whole()) if name == KUBELET]
        words = [] if _is_bypassed(site, step, choices) else [undoing(change) for change in ours]
    else:
        words = list(map(str, step.plan(site.look(choices)))) if bypasses.read(site.root) else []
    return [*words, *(f"run {' '.join(command)}" for command in step.then if words)]


def bypass_on(site: Site, choices: Choices, now: str) -> bool:
    """Switch the kubelet to the runtime's socket until `bypass_off`; return whether anything was changed."""
    with _alone(site.root):
        journal = journals.read(site.root)
        if journal is None:
            raise NodeError("Mooring is not installed on this node, so there is no shim to bypass")
        known, step = bypasses.read(site.root), _kubelet_step(site, choices)
        if _is_bypassed(site, step, choices):
            return False
        since = now if known is None else known.since
        bypasses.write(site.root, Bypass("turning on", since))
        ours = [change for name, change in journal.whole() if name == KUBELET]
        if _undo_all(site, step, reversed(ours), choices):
            raise NodeError("the kubelet's files cannot be changed: fix the problems above, then run the command again")
        site.run(step.name, step.then, check=True)
        bypasses.write(site.root, Bypass("on", since))
        return True


def _is_bypassed(site: Site, step: Step, choices: Choices) -> bool:
    """Return whether the bypass is on and no file of the kubelet names the shim."""
    known = bypasses.read(site.root)
    return known is not None and known.state == "on" and not step.leftover(site.look(choices))


def bypass_off(site: Site, choices: Choices) -> bool:
    """Switch the kubelet to the shim again; return whether the bypass was on. On an error it stays on."""
    with _alone(site.root):
        known, journal = bypasses.read(site.root), journals.read(site.root) or Journal()
        if known is None:
            return False
        if any(name != KUBELET for name, _ in journal.open or ()):
            raise NodeError("a run was killed: run install or upgrade again, or run undo")
        # Change nothing unless the shim is ready: systemctl returns after the shim has reported readiness.
        site.run("services", (("systemctl", "start", SHIM),), check=True)
        bypasses.write(site.root, replace(known, state="turning off"))
        step = _kubelet_step(site, choices)
        try:
            journal = _forward(site, choices, step, journal)
            if journal.open is None:
                # An earlier run may have been killed before it restarted the kubelet.
                restart_kubelet(site, step)
        except (NodeError, OSError, subprocess.SubprocessError, KeyboardInterrupt):
            site.say("rollback", "undoing what this run has changed")
            _backward(site, journals.read(site.root) or Journal(), [step], choices)
            bypasses.write(site.root, replace(known, state="on"))
            raise
        if journal.open is not None:
            journals.write(site.root, journal.ended())
        bypasses.remove(site.root)
        return True


def _kubelet_step(site: Site, choices: Choices) -> Step:
    """Return the step that switches the kubelet to the shim, regardless of the bypass."""
    through = replace(choices, bypassed=False)
    return next(step for step in steps(site.look(through), through) if step.name == KUBELET)


def _undo_all(site: Site, step: Step, changes: Iterable[Change], choices: Choices) -> list[Change]:
    """Undo a step's changes and its leftovers; return the changes that could not be undone."""
    resisting = [change for change in changes if not _taken_back(site, step, change)]
    for change in step.leftover(site.look(choices)):
        site.say(step.name, str(change))
        apply(site.root, change)
    return resisting


def _forward(site: Site, choices: Choices, step: Step, journal: Journal) -> Journal:
    changes = step.plan(site.look(choices))
    begun = any(name == step.name for name, _ in journal.open or ())
    if not changes and not begun and not _is_past_the_shim(site, choices, step):
        site.say(step.name, "nothing to do")
        return journal
    journal = journal.begun(step.name, changes)
    journals.write(site.root, journal)
    for change in changes:
        site.say(step.name, str(change))
        apply(site.root, change)
    if step.name == KUBELET:
        restart_kubelet(site, step)
    else:
        site.run(step.name, step.then, check=True)
    return journal


def _is_past_the_shim(site: Site, choices: Choices, step: Step) -> bool:
    """Return whether the kubelet needs a restart: its files are right, but it does not call the shim."""
    if step.name != KUBELET or choices.bypassed or below(site.root, f"{_RUN}/{shim_bypass.NAME}").exists():
        return False
    return judge(site.root, site.look(choices).kubelet) in ("awaited", "none")


def _backward(site: Site, journal: Journal, plan: Sequence[Step], choices: Choices, *, removes: bool = False) -> None:
    """Undo the open changes, the last step first; keep the journal of earlier runs.

    The cluster's offer waits for the next installation, unless it ``removes`` Mooring.

    Undo as much as possible; then raise NodeError if some changes could not be undone, which stay open in the journal.
    """
    resisting: list[tuple[str, Change]] = []
    for step in reversed(plan):
        changes = [change for name, change in journal.open or () if name == step.name]
        # Another program may have switched the kubelet to the shim, which is removed now.
        is_led = step.name == KUBELET and not journal.settled and bool(step.leftover(site.look(choices)))
        if not changes and not is_led:
            continue
        for_good = not any(name == step.name for name, _ in journal.settled)
        site.run(step.name, step.leaving if for_good else (), check=False)
        left = replace(step, leftover=step.leftover if for_good else _nothing_left)
        resisting += [(step.name, change) for change in _undo_all(site, left, reversed(changes), choices)]
        site.run(step.name, step.left if for_good else step.then, check=False)
    if resisting:
        journals.write(site.root, Journal(journal.settled, tuple(reversed(resisting))))
        raise NodeError("some changes could not be undone: fix the problems above, then run undo")
    if not removes and not journal.settled:
        _hand_offer_back(site.root)
    _leave(site.root, Journal(journal.settled), removes=removes)


def _nothing_left(_: Host) -> Sequence[Change]:
    return ()


def _taken_back(site: Site, step: Step, change: Change) -> bool:
    site.say(step.name, undoing(change))
    try:
        undo(site.root, change)
    except (NodeError, OSError) as resists:
        site.say(step.name, f"NOT undone: {resists}")
        return False
    return True


def _hand_offer_back(root: Path) -> None:
    """Let the next installation's init take the offer: the advertiser's init container hands it over once only."""
    current, handed = (below(root, f"{_STATE}/{name}") for name in (handed_offer.CURRENT, handed_offer.NEXT))
    if current.exists() and not handed.exists():
        current.replace(handed)


def _leave(root: Path, journal: Journal, *, removes: bool = True) -> None:
    if journal.settled:
        journals.write(root, journal)
        return
    journals.remove(root)
    bypasses.remove(root)
    if not record_names(below(root, _VFS), ledger.IS_NAME):
        _remove_records(root, removes=removes)
    for folder in (_PODS, _VFS, _SET_ASIDE, _IN_DOUBT, f"{_STATE}/{handed_offer.FOLDER}", _STATE):
        remove_empty(below(root, folder))
    # The scheduler assigns VFs only on nodes whose shim has recorded its version.
    for program in (CNI, CRI_SHIM):
        (below(root, _VERSIONS) / program).unlink(missing_ok=True)
    # Without a result of init, hand-over does not wait for it.
    for name in (node_check.NAME, shim_bypass.NAME, kubelet_call.NAME, handed_offer.RESULT):
        (below(root, _RUN) / name).unlink(missing_ok=True)
    # A link here was made to bypass the shim; the shim removes its own socket when it ends.
    for listen in OURS:
        if (link := below(root, listen.removeprefix("unix://"))).is_symlink():
            link.unlink()


def _remove_records(root: Path, *, removes: bool) -> None:
    """Remove the programs' files in the state folder, if no pod has VFs of this node."""
    # The shim removes a pod's record some time after the pod has ended, but the shim is already removed.
    pods = below(root, _PODS)
    for name in record_names(pods, lambda name: pod_record.IS_NAME(name) or pod_record.IS_NOTE(name)):
        (pods / name).unlink(missing_ok=True)
    for notes in (below(root, _SET_ASIDE), below(root, _IN_DOUBT)):
        for name in record_names(notes, is_address):
            (notes / name).unlink()
    # Written by init for ADD, by the cluster for init, and by the shim to promise that it marks its calls.
    offer = (handed_offer.NEXT, handed_offer.CURRENT) if removes else ()
    for name in (node_offer.NAME, *offer, sandbox_marks.PROMISE):
        (below(root, _STATE) / name).unlink(missing_ok=True)


def _pruned(site: Site, choices: Choices, journal: Journal, done: Entries) -> Journal:
    """Remove all releases except the current one and the previous one, which running calls may still use."""
    links = [change for _, change in done if isinstance(change, PathChange) and change.path == choices.current]
    if not links:
        return journal
    states = (state for link in links for state in (link.before, link.after))
    kept = {f"{choices.folder}/{state.target}" for state in states if isinstance(state, Link)}
    old = [change for _, change in journal.settled if isinstance(change, ReleaseFolder) and change.folder not in kept]
    for change in old:
        site.say("environment", f"remove {change.folder}")
        undo(site.root, change)
    return Journal(tuple((step, change) for step, change in journal.settled if change not in old))


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Lock the journal's folder; raise NodeError if another run has it locked."""
    folder = below(root, journals.FILE).parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise NodeError(f"another mooring-node is running on {str(root)!r}") from None
    finally:
        os.close(descriptor)
        for empty in (folder, folder.parent):
            remove_empty(empty)
