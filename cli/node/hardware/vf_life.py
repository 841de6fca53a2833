"""A full life of one VF: ADD with every setting, what the NIC makes of each, a rebind, DEL, and the comparison.

What is tried beside ADD and DEL is done while the VF is in the pod, on settings that ADD has entered in the ledger. DEL
restores them, also by the node's own repairs if this program is killed.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from errno import errorcode
from pathlib import Path

from cli.node.hardware import vf_use
from cli.node.hardware.commands import CommandError, attempt, run_json, text_of
from cli.node.hardware.host import Target
from cli.node.hardware.plan import recorded, trial
from cli.node.hardware.plan.addresses import PfAddresses
from cli.node.hardware.plan.checks import Answer
from cli.node.hardware.plan.free_vf import VfUse
from cli.node.hardware.pods import IFNAME, PREFIX, Folders, Pod, pod, refusal
from cni.kernel import driver
from cni.kernel.sysfs import Sysfs
from cni.vf.ledger import Ledger
from mooring.annotations.assignment import AssignedVf
from mooring.locks import hold
from mooring.nic.settings import VfSettings

# Called with each answer as soon as it is known.
Tell = Callable[[Answer], None]
_POLL_S = 0.02
_MAC_S, _ACTIVE_S, _BACK_S, _SETTLED_S = 3.0, 30.0, 30.0, 1.0
LOCK_S = 10.0
_ACTIVE = "4:"
_RECORDED_DRIVER, RECORDING = "mlx5_core", Path(__file__).with_name("mlx5_settings.json")
# rdma-netns mode exclusive: the device is in the pod's namespace, or it did not follow its VF.
_EXCLUSIVE = "netns exclusive"


@dataclass(frozen=True, slots=True)
class Subject:
    """One VF of the PF that is tested."""

    target: Target
    vf: VfUse

    def assigned(self, settings: VfSettings) -> AssignedVf:
        """Return the VF as an assignment names it."""
        pf = self.target.pf
        return AssignedVf(pf.name, self.vf.index, self.vf.pci, pf.link, pf.network, settings)

    @property
    def addresses(self) -> PfAddresses:
        return self.target.addresses

    @property
    def folders(self) -> Folders:
        return Folders(self.target.state, self.target.run)

    def read(self) -> VfSettings:
        return self.target.settings.read(self.target.pf.name, self.vf.index)

    def write(self, settings: VfSettings) -> None:
        """Set a VF that a pod of the test holds; what is refused is written again by its DEL."""
        try:
            self.target.settings.write(self.target.pf.name, self.vf.index, settings)
        except OSError:
            Ledger(self.target.state).put_in_doubt(self.vf.pci)
            raise

    def refuses(self, settings: VfSettings) -> str | None:
        """Set a VF on its PF; return the error where that is refused."""
        try:
            self.write(settings)
        except OSError as error:
            return error.strerror or str(error)
        return None


def live(subject: Subject, tell: Tell) -> None:
    """Tell the answers of one VF's life; whatever fails, the VF is given back."""
    first_state = vf_use.state_of(subject.target, subject.vf.index)
    settings, guid = trial.trial(subject.target.pf.can, first_state.settings, subject.addresses), _node_guid(subject)
    first = trial.guid_kind(guid, trial.mac_of(first_state), first_state.settings.guid)
    pod: Pod | None = None
    try:
        with ExitStack() as stack:
            pod, refusals = _attached(stack, subject, first_state.settings, settings)
            # With its lock held the node's own repairs leave the VF alone.
            with hold(subject.target.run, subject.vf.pci, LOCK_S):
                _tell_add(subject, pod, settings, refusals, tell)
                tell(_as_recorded(subject, pod))
                _try_in_pod(subject, pod, tell)
                _try_rebind(subject, pod.vf.settings, first, tell)
                tell(_zero_guid(subject, pod.vf.settings))
    except (CommandError, OSError) as error:
        why = refusal(error) if isinstance(error, CommandError) else str(error)
        tell(Answer("vf.add" if pod is None else "vf.del", "differs", {}, why))
        return
    tell(Answer("vf.del", "info", {"seconds": _rounded(pod.del_s)}))
    changes = trial.changed(first_state, vf_use.state_of(subject.target, subject.vf.index))
    tell(
        Answer("vf.restored", "differs" if changes else "ok", {"changed": changes}, "not as before" if changes else "")
    )


def _attached(
    stack: ExitStack, subject: Subject, first_settings: VfSettings, settings: VfSettings
) -> tuple[Pod, dict[str, str]]:
    """Attach the VF with all settings; where that fails, without, and return which of them the PF refuses and why.

    Those are then tried one by one on the PF. ADD still enters them in the ledger, as they are, so that DEL restores
    them. Raise CommandError if ADD fails without a setting too, or if each is taken alone and not all of them together.
    """
    try:
        return stack.enter_context(_pod(subject, settings)), {}
    except CommandError as error:
        first_error, refusals = error, {}
    known_settings = trial.as_found(settings, first_settings)
    try:
        pod = stack.enter_context(_pod(subject, known_settings))
    except CommandError as error:
        # MAC and GUID are written whatever they are.
        refusals = dict.fromkeys({"mac", "guid"} & known_settings.to_fields().keys(), refusal(error))
        pod = stack.enter_context(_pod(subject, trial.without(known_settings, refusals)))
    left = trial.without(settings, refusals)
    for name in left.to_fields():
        if (why := subject.refuses(trial.alone(name, left, refusals))) is not None:
            refusals[name] = why
    if not refusals:
        raise first_error
    return pod, refusals


def _pod(subject: Subject, settings: VfSettings) -> AbstractContextManager[Pod]:
    return pod(0, subject.assigned(settings), subject.folders)


def _tell_add(subject: Subject, pod: Pod, wanted: VfSettings, refusals: dict[str, str], tell: Tell) -> None:
    settings = sorted(pod.vf.settings.to_fields())
    tell(Answer("vf.add", "info", {"seconds": _rounded(pod.add_s), "settings": settings}))
    for answer in trial.read_back(wanted, subject.read(), refusals):
        tell(answer)


def _as_recorded(subject: Subject, pod: Pod) -> Answer:
    """Compare what the card does with each recorded case of mlx5 on Ethernet; then write the pod's settings again."""
    check, target = "settings.recorded", subject.target
    if target.pf.link != "ethernet" or (target.function / "driver").resolve().name != _RECORDED_DRIVER:
        return Answer(check, "n/a", {}, f"only {_RECORDED_DRIVER} on Ethernet is recorded")
    record = recorded.read_recording(RECORDING.read_text())
    try:
        differences = [recorded.difference(case, _run_case(subject, record.first, case)) for case in record.cases]
    finally:
        subject.refuses(pod.vf.settings)
    different = [answer for answer in differences if answer is not None]
    facts = {"equal": len(differences) - len(different), "different": different}
    return Answer(check, "differs" if different else "ok", facts, "not as recorded" if different else "")


def _run_case(subject: Subject, first: VfSettings, case: recorded.Case) -> recorded.Outcome:
    """Write a case's settings. The answer to ``first`` is listed only where the card refuses it: none was recorded."""
    answers = []
    for step in (first, *case.steps):
        try:
            subject.write(step)
            answers.append(recorded.TAKEN)
        except OSError as error:
            answers.append(errorcode.get(error.errno or 0, str(error)))
    answers_shown = answers[1:] if answers[0] == recorded.TAKEN else answers
    return recorded.outcome(first, answers_shown, subject.read())


def _try_in_pod(subject: Subject, pod: Pod, tell: Tell) -> None:
    for check, ask in (("vf.rdma-device", _rdma_device), ("port.active", _port_active)):
        try:
            tell(ask(subject, pod))
        except (CommandError, OSError) as error:
            tell(Answer(check, "differs", {}, str(error)))
    of_macs = (("mac.own", _own_mac), ("mac.netdev", _netdev_mac), ("mac.unset", _unset_mac))
    if pod.vf.settings.mac is None:
        for check, _ in of_macs:
            tell(Answer(check, "n/a", {}, "the VF has no MAC that its PF sets"))
        return
    for check, ask in of_macs:
        try:
            tell(ask(subject, pod))
        except (CommandError, OSError) as error:
            tell(Answer(check, "not asked", {}, str(error)))
    subject.refuses(VfSettings(mac=pod.vf.settings.mac))


def _rdma_device(subject: Subject, pod: Pod) -> Answer:
    name = vf_use.rdma_of(subject.target, subject.vf.pci)
    if name is None:
        return Answer("vf.rdma-device", "differs", {}, "the VF has no RDMA device")
    inside = [device["ifname"] for device in run_json((*pod.inside, "rdma", "-j", "dev", "show")) or ()]
    exclusive = _EXCLUSIVE in (attempt(("rdma", "system", "show")) or "")
    is_alone = inside == [name] if exclusive else name in inside
    facts = {"exclusive": exclusive, "devices-in-pod": len(inside)}
    return Answer(
        "vf.rdma-device", "ok" if is_alone else "differs", facts, "" if is_alone else "the pod sees others, or none"
    )


def _port_active(subject: Subject, pod: Pod) -> Answer:
    name = vf_use.rdma_of(subject.target, subject.vf.pci)
    command = (*pod.inside, "cat", f"/sys/class/infiniband/{name}/ports/1/state")
    began, states = time.monotonic(), list[list[object]]()

    def is_active() -> bool:
        state = attempt(command) or "unreadable"
        if not states or states[-1][1] != state:
            states.append([_rounded(time.monotonic() - began), state])
        return state.startswith(_ACTIVE)

    wait_s = _until(is_active, _ACTIVE_S)
    why = f"the port is not ACTIVE after {_ACTIVE_S:.0f} s" if wait_s is None else ""
    return Answer("port.active", "differs" if why else "info", {"seconds": wait_s, "states": states}, why)


def _own_mac(subject: Subject, pod: Pod) -> Answer:
    """Let the VF change its own MAC, not trusted where the PF knows trust."""
    if pod.vf.settings.trust is not None:
        subject.refuses(VfSettings(trust=False))
    attempts = []
    for spoofchk in (True, False) if pod.vf.settings.spoofchk is not None else (None,):
        if spoofchk is not None:
            subject.write(VfSettings(spoofchk=spoofchk))
        own_mac = subject.addresses.mac(trial.OWN)
        is_accepted = _set_address(pod, own_mac)
        reports = trial.mac_kind(subject.read().mac, subject.addresses)
        has_it = _address(pod) == own_mac
        attempts.append({"spoofchk": spoofchk, "accepted": is_accepted, "netdev-has-it": has_it, "pf-reports": reports})
        _set_address(pod, subject.addresses.mac(trial.ADMIN))
    return Answer("mac.own", "info", {"tried": attempts})


def _netdev_mac(subject: Subject, pod: Pod) -> Answer:
    second = subject.addresses.mac(trial.SECOND)
    subject.write(VfSettings(mac=second))
    return Answer("mac.netdev", "info", {"netdev-has-it-after-s": _until(lambda: _address(pod) == second, _MAC_S)})


def _unset_mac(subject: Subject, pod: Pod) -> Answer:
    refusal_text = subject.refuses(VfSettings(mac=trial.NO_MAC))
    facts = {"refused": refusal_text, "pf-reports": trial.mac_kind(subject.read().mac, subject.addresses)}
    return Answer("mac.unset", "info", {**facts, "netdev-has": trial.mac_kind(_address(pod), subject.addresses)})


def _try_rebind(subject: Subject, settings: VfSettings, guid_first: str, tell: Tell) -> None:
    """Rebind the VF's driver: its devices come back on the host, where DEL finds them.

    ``guid_first`` is the kind of node GUID that the VF had before ADD, which may have given it another one.
    """
    target, pci = subject.target, subject.vf.pci
    netdev, rdma = IFNAME if subject.vf.netdev is not None else None, vf_use.rdma_of(target, pci)
    first_settings, guid = subject.read(), _node_guid(subject)
    began = time.monotonic()
    try:
        driver.rebind(Sysfs(target.root / "sys"), pci)
    except OSError as error:
        tell(Answer("rebind.time", "differs", {}, str(error)))
        return
    bound_s = time.monotonic() - began
    rdma_s = None if rdma is None else _until(lambda: vf_use.rdma_of(target, pci) is not None, _BACK_S)
    netdev_s = None if netdev is None else _until(lambda: vf_use.netdev_of(target, pci) is not None, _BACK_S)
    names = _names(subject)
    is_back = (rdma is None or rdma_s is not None) and (netdev is None or netdev_s is not None)
    times = {"bound-s": _rounded(bound_s), "rdma-more-s": rdma_s, "netdev-more-s": netdev_s, "renames": names}
    tell(
        Answer("rebind.time", "info" if is_back else "differs", times, "" if is_back else "a device has not come back")
    )
    last_settings = subject.read()
    losses = [name for name in settings.to_fields() if getattr(first_settings, name) != getattr(last_settings, name)]
    tell(Answer("rebind.settings", "info", {"changed": losses}))
    kinds = [trial.guid_kind(value, settings.mac, settings.guid) for value in (guid, _node_guid(subject))]
    facts = {"before-add": guid_first, "before-rebind": kinds[0], "after-rebind": kinds[1]}
    tell(Answer("guid.node", "info", facts))


def _zero_guid(subject: Subject, settings: VfSettings) -> Answer:
    """Take the GUID away and bind the VF again; its devices are on the host since the rebind before."""
    check = "guid.zero"
    if settings.guid is None:
        return Answer(check, "n/a", {}, "the VF has no GUID that its PF sets")
    if (refusal_text := subject.refuses(VfSettings(guid=trial.NO_GUID))) is not None:
        return Answer(check, "info", {"refused": refusal_text})
    try:
        driver.rebind(Sysfs(subject.target.root / "sys"), subject.vf.pci)
        _until(lambda: vf_use.rdma_of(subject.target, subject.vf.pci) is not None, _BACK_S)
        node = trial.guid_kind(_node_guid(subject), None, settings.guid)
        facts: dict[str, object] = {"pf-reports": trial.set_guid_kind(subject.read().guid, settings.guid), "node": node}
    except OSError as error:
        return Answer(check, "not asked", {}, str(error))
    finally:
        subject.refuses(VfSettings(guid=settings.guid))
    return Answer(check, "info", facts)


def _names(subject: Subject) -> list[float]:
    """Return when after a rebind netdev or RDMA device changed their names, in seconds, until they keep them."""
    target, pci = subject.target, subject.vf.pci
    began = change_s = time.monotonic()
    devices, times = (vf_use.netdev_of(target, pci), vf_use.rdma_of(target, pci)), []
    while time.monotonic() - change_s < _SETTLED_S:
        now = (vf_use.netdev_of(target, pci), vf_use.rdma_of(target, pci))
        if now != devices:
            devices, change_s = now, time.monotonic()
            times.append(round(change_s - began, 3))
        time.sleep(_POLL_S)
    return times


def _node_guid(subject: Subject) -> str | None:
    """Return the node GUID of the VF's RDMA device, read below its PCI function, or in its pod."""
    name = vf_use.rdma_of(subject.target, subject.vf.pci)
    path = subject.target.device(subject.vf.pci) / "infiniband" / str(name) / "node_guid"
    inside = f"/sys/class/infiniband/{name}/node_guid"
    return text_of(path) or attempt(("ip", "netns", "exec", f"{PREFIX}-0", "cat", inside))


def _set_address(pod: Pod, mac: str) -> bool:
    """Set the netdev's own MAC in the pod; return whether that is accepted.

    It is down meanwhile: eth_prepare_mac_addr_change in net/ethernet/eth.c refuses it for most drivers while it is up.
    """
    link = (*pod.inside, "ip", "link", "set", IFNAME)
    attempt((*link, "down"))
    is_accepted = attempt((*link, "address", mac)) is not None
    attempt((*link, "up"))
    return is_accepted


def _address(pod: Pod) -> str | None:
    (link,) = run_json((*pod.inside, "ip", "-j", "link", "show", IFNAME))
    return str(link.get("address"))


def _until(holds: Callable[[], bool], limit_s: float) -> float | None:
    """Return after how many seconds something holds, None if it does not within the limit."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > limit_s:
            return None
        time.sleep(_POLL_S)
    return _rounded(time.monotonic() - began)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
