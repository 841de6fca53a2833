"""Apply changed rates of running pods that the advertiser passes to the server.

The server checks the advertiser's folder every second; if nothing changed, that is one read of the folder. Rates that
it accepts, and that are newer than the recorded ones, are recorded first, under the locks of the pod's VFs. So the last
decision counts, and every later ADD sets it. Then `apply_rates` puts each record in force. A failure is tried again at
growing intervals. If the server is killed, the next one continues from the record and the ledger.

A generation that is in force stays in force until a newer one is recorded, because all code that sets a rate reads the
record under the VF's lock. The state for the advertiser is written last, once everything else is on disk.
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
from mooring.locks import LockBusyError, hold_locks
from mooring.records import pod_record, rates_record
from mooring.records.pod_record import PodRecord, pod_record_name
from mooring.records.rates_exchange import HandedOverRates, RatesState, Refusal
from mooring.records.rates_record import RatesRecord, rates_record_name

_log = structlog.get_logger()
INTERVAL_S = 1.0
# Seconds until rejected rates are checked again: the keys may have been replaced.
_RECHECK_S = 30.0
# Seconds between checks for records of pods that no longer exist.
_FORGET_S = 10.0


class SignatureError(ValueError):
    """Rates without a valid signature by one of this node's keys."""


class ChangedRates:
    """Applies changed rates of one node's pods; ``node`` creates the Node for each pass."""

    def __init__(self, node: Callable[[], Node], keys: AssignmentKeys, metrics: Metrics) -> None:
        self._node = node
        self._keys = keys
        self._metrics = metrics
        self._handed_over = HandedOver()
        self._state_files = RatesStates()
        self._states: dict[str, RatesState] | None = None
        # Pods whose state a new server has not checked yet; no states are written until it has.
        self._unknown: set[str] = set()
        self._backoffs: dict[str, Backoff] = {}
        self._reported_reasons: dict[str, str] = {}
        self._forget_s = float("-inf")

    def run(self, stop: threading.Event) -> None:
        """Run a pass now, then one every second until ``stop`` is set."""
        while not stop.is_set():
            try:
                self.look(time.monotonic())
            except Exception:  # noqa: BLE001 - the top of this loop: the next pass may succeed
                _log.exception("applying changed rates failed unexpectedly")
            stop.wait(INTERVAL_S)

    def look(self, now: float) -> None:
        """Run one pass: record new rates, and apply those that are due; ``now`` is in monotonic seconds."""
        node = self._node()
        if self._states is None:
            self._states = self._read_states(node)
        states = self._states
        self._take(node, states, now)
        for uid, state in states.items():
            if not state.in_force and is_due(self._backoffs.get(uid), now):
                states[uid] = self._apply(node, uid, state, now)
        self._forget(node, states, now)
        if not self._unknown & states.keys():
            self._state_files.write(node.run, states)
        self._metrics.pending_rates(sum(not state.in_force for state in states.values()))

    def _read_states(self, node: Node) -> dict[str, RatesState]:
        """Return the state of each record that exists at the start, by pod uid."""
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
        """Record accepted and newer rates from the advertiser; skip pods that a call is working on."""
        try:
            handed_over = self._handed_over.read(node.run, lambda uid: _is_recorded(node, uid), now)
        except OSError as unusable:
            self._report("", "rates from the advertiser cannot be read", str(unusable))
            return
        for uid, handover in handed_over.items():
            try:
                pod = node.ledger.pod(uid)
                record = None if pod is None else self._record(node, pod, handover)
            except LockBusyError:
                continue
            except (ValueError, OSError) as error:
                self._report(uid, "rates from the advertiser are rejected", str(error))
                self._metrics.rates_failure()
                self._handed_over.settle(uid, now + _RECHECK_S)
                continue
            if record is not None:
                states[uid] = RatesState(record.pod, record.rates.generation, in_force=False)
                self._backoffs.pop(uid, None)
            if pod is not None:
                self._handed_over.settle(uid)

    def _record(self, node: Node, pod: PodRecord, handover: HandedOverRates) -> RatesRecord | None:
        """Record rates if they are accepted and newer than the record; return the new record, None otherwise."""
        rates = self._verify(pod, handover)
        if not _is_newer(node, rates):
            return None
        record = RatesRecord(pod.pod, rates)
        with hold_locks(node.run, _pcis(pod), limit_s=0):
            node.ledger.write_rates(record)
        _log.info("rates recorded", pod=pod.pod, uid=rates.uid, generation=rates.generation)
        return record

    def _verify(self, pod: PodRecord, handover: HandedOverRates) -> PodRates:
        """Return verified rates of this pod; raise SignatureError before anything is parsed, or AnnotationError."""
        signature = None if handover.signature is None else handover.signature.encode()
        if reason := self._keys.refusal(handover.rates.encode(), signature, RATES):
            raise SignatureError(reason)
        return verified_rates(handover.rates, pod.assignment)

    def _apply(self, node: Node, uid: str, state: RatesState, now: float) -> RatesState:
        """Apply the record of a pod as far as possible now; return its new state."""
        try:
            is_done = _put_in_force(node, uid)
        except LockBusyError:
            return state
        except RatesRefusedError as error:
            self._postpone(uid, str(error), now)
            return RatesState(state.pod, state.generation, in_force=False, refusal=Refusal(error.pci, str(error)))
        except LeavingVfError as error:
            self._postpone(uid, str(error), now)
            return RatesState(state.pod, state.generation, in_force=False)
        except (RecordError, OSError) as error:
            self._postpone(uid, str(error), now)
            return state
        self._unknown.discard(uid)
        if not is_done:
            return state
        self._backoffs.pop(uid, None)
        self._reported_reasons.pop(uid, None)
        self._metrics.rates_change()
        _log.info("rates are in force", pod=state.pod, uid=uid, generation=state.generation)
        return RatesState(state.pod, state.generation, in_force=True)

    def _postpone(self, uid: str, reason: str, now: float) -> None:
        self._unknown.discard(uid)
        self._backoffs[uid] = next_backoff(self._backoffs.get(uid), now)
        self._metrics.rates_failure()
        self._report(uid, "rates are not in force yet", reason)

    def _forget(self, node: Node, states: dict[str, RatesState], now: float) -> None:
        """Remove the records of pods that no longer exist: without pod record, without VF, and not in the API server.

        After a boot an existing pod may have neither pod record nor VF until the kubelet creates its sandbox. Only the
        advertiser knows then, once it has listed the pods. Without the advertiser no record is removed.
        """
        can_forget = self._handed_over.is_whole and (node.ledger.state / pod_record.FOLDER).is_dir()
        if now - self._forget_s < _FORGET_S or not can_forget:
            return
        self._forget_s = now
        old_uids = {uid for uid in states if uid not in self._handed_over.uids and not _is_recorded(node, uid)}
        if not old_uids:
            return
        content = node.ledger.content()
        for uid in old_uids - {entry.uid for entry in content.entries} if not content.unreadable else ():
            remove_file(node.ledger.state / rates_record_name(uid))
            for uid_map in (states, self._backoffs, self._reported_reasons):
                uid_map.pop(uid, None)

    def _report(self, uid: str, event: str, reason: str) -> None:
        if self._reported_reasons.get(uid) != reason:
            _log.warning(event, uid=uid, reason=reason)
        self._reported_reasons[uid] = reason


def _is_recorded(node: Node, uid: str) -> bool:
    return is_record(node.ledger.state / pod_record_name(uid))


def _pcis(pod: PodRecord) -> list[str]:
    return [vf.pci for vf in pod.assignment.vfs]


def _is_newer(node: Node, rates: PodRates) -> bool:
    """Return whether rates are newer than the record; True if the record cannot be read."""
    try:
        record = node.ledger.rates(rates.uid)
    except RecordError:
        return True
    return record is None or rates.generation > record.rates.generation


def _put_in_force(node: Node, uid: str) -> bool:
    """Apply a pod's rates; return whether they are in force on all its VFs.

    Without a pod record nothing is set, and no ADD can set anything either.
    """
    pod, record = node.ledger.pod(uid), node.ledger.rates(uid)
    if pod is None or record is None:
        content = node.ledger.content()
        return not content.unreadable and all(entry.uid != uid for entry in content.entries)
    with hold_locks(node.run, _pcis(pod), limit_s=0):
        return apply_rates(node, pod, record)
