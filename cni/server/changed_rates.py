"""Take changed rates of running pods that the advertiser hands over, and put them in force: part of the warm server.

Each second it looks at what was handed over; where nothing has changed that is one look at a folder. What is believed
is recorded before anything else happens, under the locks of the pod's VFs, if it is newer than what is recorded: so the
last decision counts, and every ADD from then on sets it. Then `apply_rates` puts each record in force. What a server
that was killed has left out shows in record and ledger, and the next one goes on with it. A refusal is tried again, at
growing intervals.

A generation that is in force stays so until a newer one is recorded: whatever sets a rate of the pod has read the
record under the VF's lock. What the advertiser may know of it is told last, once all of it is on disk.
"""

import threading
import time
from collections.abc import Callable

import structlog

from cni.plan.orphans import Backoff, is_due, next_backoff
from cni.server.handed_over import HandedOver
from cni.server.metrics import Metrics
from cni.server.rates_states import RatesStates, was_in_force
from cni.vf.node import Node
from cni.vf.rates.apply_rates import LeavingVfError, RatesRefusedError, apply_rates
from mooring.annotations.assignment_keys import RATES, AssignmentKeys
from mooring.annotations.rates import PodRates, verified_rates
from mooring.errors import RecordError
from mooring.files import remove_file
from mooring.folders import is_record, record_names
from mooring.locks import LockBusyError, hold_all
from mooring.records import pod_record, rates_record
from mooring.records.pod_record import PodRecord, pod_record_name
from mooring.records.rates_exchange import HandedOverRates, RatesState, Refusal
from mooring.records.rates_record import RatesRecord, rates_record_name

_log = structlog.get_logger()
INTERVAL_S = 1.0
# What was not believed is held against the keys again after so many seconds: they may have been replaced.
_DOUBTED_S = 30.0
# So many seconds lie between two looks for records of pods that are gone.
_FORGET_S = 10.0


class NotBelievedError(ValueError):
    """Rates that none of this node's keys has signed."""


class ChangedRates:
    """The changed rates of one node's pods; ``node`` makes the Node that a look works on."""

    def __init__(self, node: Callable[[], Node], keys: AssignmentKeys, metrics: Metrics) -> None:
        self._node = node
        self._keys = keys
        self._metrics = metrics
        self._handed_over = HandedOver()
        self._shown = RatesStates()
        self._states: dict[str, RatesState] | None = None
        # Pods whose state a new server does not know yet: until then none is shown that was not shown before.
        self._unknown: set[str] = set()
        self._backoffs: dict[str, Backoff] = {}
        self._told: dict[str, str] = {}
        self._forget_s = float("-inf")

    def run(self, ended: threading.Event) -> None:
        """Look at once, then every second until ``ended``."""
        while not ended.is_set():
            try:
                self.look(time.monotonic())
            except Exception:  # noqa: BLE001 - the top of this loop: the next look may do better
                _log.exception("applying changed rates failed unexpectedly")
            ended.wait(INTERVAL_S)

    def look(self, now: float) -> None:
        """Record what is new, and put in force what can be now; ``now`` is in monotonic seconds."""
        node = self._node()
        if self._states is None:
            self._states = self._recorded(node)
        states = self._states
        self._take(node, states, now)
        for uid, state in states.items():
            if not state.in_force and is_due(self._backoffs.get(uid), now):
                states[uid] = self._apply(node, uid, state, now)
        self._forget(node, states, now)
        if not self._unknown & states.keys():
            self._shown.write(node.run, states)
        self._metrics.pending_rates(sum(not state.in_force for state in states.values()))

    def _recorded(self, node: Node) -> dict[str, RatesState]:
        """Return the state of each record that is there at the start."""
        states = {}
        for name in record_names(node.ledger.state / rates_record.FOLDER, rates_record.IS_NAME):
            uid = name.removesuffix(".json")
            try:
                record = node.ledger.rates(uid)
            except (RecordError, OSError) as unreadable:
                _log.error("rates record cannot be read", uid=uid, reason=str(unreadable))
                continue
            if record is not None:
                generation = record.rates.generation
                states[uid] = RatesState(record.pod, generation, was_in_force(node.run, uid, generation))
        self._unknown = {uid for uid, state in states.items() if not state.in_force}
        return states

    def _take(self, node: Node, states: dict[str, RatesState], now: float) -> None:
        """Record what was handed over, as far as it is believed and newer; a pod that a call works on waits."""
        try:
            handed_over = self._handed_over.read(node.run, lambda uid: _is_recorded(node, uid), now)
        except OSError as unusable:
            self._tell("", "rates from the advertiser cannot be read", str(unusable))
            return
        for uid, given in handed_over.items():
            try:
                pod = node.ledger.pod(uid)
                recorded = None if pod is None else self._record(node, pod, given)
            except LockBusyError:
                continue
            except (ValueError, OSError) as refused:
                self._tell(uid, "rates from the advertiser are rejected", str(refused))
                self._metrics.rates_refused()
                self._handed_over.settle(uid, now + _DOUBTED_S)
                continue
            if recorded is not None:
                states[uid] = RatesState(recorded.pod, recorded.rates.generation, in_force=False)
                self._backoffs.pop(uid, None)
            if pod is not None:
                self._handed_over.settle(uid)

    def _record(self, node: Node, pod: PodRecord, given: HandedOverRates) -> RatesRecord | None:
        """Record rates that are believed, and newer than what is recorded; return what was recorded."""
        rates = self._believed(pod, given)
        if not _is_newer(node, rates):
            return None
        record = RatesRecord(pod.pod, rates)
        with hold_all(node.run, _pcis(pod), limit_s=0):
            node.ledger.write_rates(record)
        _log.info("rates recorded", pod=pod.pod, uid=rates.uid, generation=rates.generation)
        return record

    def _believed(self, pod: PodRecord, given: HandedOverRates) -> PodRates:
        """Return rates of this pod; raise NotBelievedError before anything is parsed, or AnnotationError."""
        signature = None if given.signature is None else given.signature.encode()
        if reason := self._keys.refused(given.rates.encode(), signature, RATES):
            raise NotBelievedError(reason)
        return verified_rates(given.rates, pod.assignment)

    def _apply(self, node: Node, uid: str, state: RatesState, now: float) -> RatesState:
        """Put a record in force, as far as that is possible now; return its state."""
        try:
            is_done = _put_in_force(node, uid)
        except LockBusyError:
            return state
        except RatesRefusedError as refused:
            self._failed(uid, str(refused), now)
            return RatesState(state.pod, state.generation, in_force=False, refused=Refusal(refused.pci, str(refused)))
        except LeavingVfError as unknown:
            self._failed(uid, str(unknown), now)
            return RatesState(state.pod, state.generation, in_force=False)
        except (RecordError, OSError) as failed:
            self._failed(uid, str(failed), now)
            return state
        self._unknown.discard(uid)
        if not is_done:
            return state
        self._backoffs.pop(uid, None)
        self._told.pop(uid, None)
        self._metrics.rates_changed()
        _log.info("rates are in force", pod=state.pod, uid=uid, generation=state.generation)
        return RatesState(state.pod, state.generation, in_force=True)

    def _failed(self, uid: str, reason: str, now: float) -> None:
        self._unknown.discard(uid)
        self._backoffs[uid] = next_backoff(self._backoffs.get(uid), now)
        self._metrics.rates_refused()
        self._tell(uid, "rates are not in force yet", reason)

    def _forget(self, node: Node, states: dict[str, RatesState], now: float) -> None:
        """Remove the records of pods that are gone: no pod record, no VF, and not in the API server.

        After a boot a pod that exists may have none of the first two for as long as its kubelet makes no sandbox; only
        the advertiser knows, once it has listed the pods. Without it no record is removed, and none is added.
        """
        knows = self._handed_over.is_whole and (node.ledger.state / pod_record.FOLDER).is_dir()
        if now - self._forget_s < _FORGET_S or not knows:
            return
        self._forget_s = now
        gone = {uid for uid in states if uid not in self._handed_over.uids and not _is_recorded(node, uid)}
        if not gone:
            return
        content = node.ledger.content()
        for uid in gone - {entry.uid for entry in content.entries} if not content.unreadable else ():
            remove_file(node.ledger.state / rates_record_name(uid))
            for known in (states, self._backoffs, self._told):
                known.pop(uid, None)

    def _tell(self, uid: str, event: str, reason: str) -> None:
        if self._told.get(uid) != reason:
            _log.warning(event, uid=uid, reason=reason)
        self._told[uid] = reason


def _is_recorded(node: Node, uid: str) -> bool:
    return is_record(node.ledger.state / pod_record_name(uid))


def _pcis(pod: PodRecord) -> list[str]:
    return [vf.pci for vf in pod.assignment.vfs]


def _is_newer(node: Node, rates: PodRates) -> bool:
    """Return whether rates are newer than the record; one that cannot be read is replaced by what is believed."""
    try:
        record = node.ledger.rates(rates.uid)
    except RecordError:
        return True
    return record is None or rates.generation > record.rates.generation


def _put_in_force(node: Node, uid: str) -> bool:
    """Set a pod's rates; return whether no VF has others. Without a pod record nothing is set, nor by any ADD."""
    pod, record = node.ledger.pod(uid), node.ledger.rates(uid)
    if pod is None or record is None:
        content = node.ledger.content()
        return not content.unreadable and all(entry.uid != uid for entry in content.entries)
    with hold_all(node.run, _pcis(pod), limit_s=0):
        return apply_rates(node, pod, record)
