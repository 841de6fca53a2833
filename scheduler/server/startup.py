"""What the scheduler reads at its start: installed constraints, its signing key, the admission policies.

`scheduler.__main__` reads each; only the policies are read again later.
"""

import asyncio
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Protocol

import structlog
from prometheus_client import Gauge

from mooring.annotations import rates_signature
from mooring.annotations.assignment_signature import AssignmentSignature, dump_signature, key_id, signed_bytes
from mooring.kube.admission_policies import read_policies
from mooring.kube.client import STRATEGIC_PATCH, Client
from mooring.kube.failures import KubeError
from mooring.kube.guard import STATES, PolicyState
from mooring.program.config import ConfigError
from scheduler.constraints.kinds import AnyConstraint, ConstraintError, Kind, Kinds, isolate, name_fault
from scheduler.placement.gpus import gpu_kind
from scheduler.server.report_writer import timestamp
from scheduler.server.reports import condition, condition_patch, pod_path

_log = structlog.get_logger()
# Entry points of constraints: the name is the kind's, the value a class or function that returns the constraint.
GROUP = "mooring.constraints"
_METHODS = ("read_request", "read_inventory", "judge", "place")
# A condition type of our own on a pod; it has a prefix, like those of readiness gates.
CONDITION = "mooring.dev/AdmissionPoliciesBound"
# Seconds between two checks of the policies, and while a state is unknown.
_INTERVAL_S, _SHORT_INTERVAL_S = 600.0, 60.0
_MAX_MESSAGE = 1024
_POLICIES = Gauge(
    "mooring_admission_policies",
    "1 for the state of an admission policy: bound, missing, unbound (it does not deny) or unknown",
    ["policy", "state"],
)


def installed_kinds() -> Kinds:
    """Return Mooring's own kind, GPUs, and all constraints of this Python installation."""
    return load_kinds(entry_points(group=GROUP), (gpu_kind(),))


def load_kinds(points: Iterable[EntryPoint], built_in_kinds: Iterable[Kind] = ()) -> Kinds:
    """Load these entry points; of several with one name, the last.

    One that cannot be loaded is kept as a broken kind: a pod that requests it waits with that reason, instead of being
    bound without it.
    """
    kinds = list(built_in_kinds)
    built_in_names = {kind.name for kind in kinds}
    for name, point in {point.name: point for point in points}.items():
        if fault := name_fault(name) or ("is the name of a built-in kind" if name in built_in_names else ""):
            _log.error("constraint ignored", constraint=name, reason=f"{name!r} {fault}")
        else:
            kinds.append(_load_kind(point))
    return Kinds(kinds)


def _load_kind(point: EntryPoint) -> Kind:
    try:
        constraint, missing_methods = isolate(lambda: _make(point), ())
        fault = f"it has no method {missing_methods[0]!r}" if missing_methods else ""
    except ConstraintError as error:
        constraint, fault = None, str(error)
    if fault:
        _log.error("constraint cannot be loaded", constraint=point.name, reason=fault)
        return Kind(point.name, None, f"could not be loaded: {fault}")
    _log.info("constraint loaded", constraint=point.name, value=point.value)
    return Kind(point.name, constraint)


def _make(point: EntryPoint) -> tuple[AnyConstraint, list[str]]:
    """Return the constraint, and the methods that it lacks."""
    constraint = point.load()()
    return constraint, [method for method in _METHODS if not callable(getattr(constraint, method, None))]


class _PrivateKey(Protocol):
    def sign(self, data: bytes, /) -> bytes: ...


class SigningKey:
    """Signs an assignment's text when called, and the text of rates."""

    def __init__(self, key: _PrivateKey, own_id: str) -> None:
        self._key, self._id = key, own_id

    def __call__(self, assignment: str) -> str:
        return self._dump(signed_bytes(assignment.encode()))

    def rates(self, rates: str) -> str:
        return self._dump(rates_signature.signed_bytes(rates.encode()))

    def _dump(self, message: bytes) -> str:
        return dump_signature(AssignmentSignature(self._id, self._key.sign(message)))


def load_signing_key(file: str) -> SigningKey | None:
    """Return the signer, from an ed25519 private key in a PEM file; None if no file is named. Raise ConfigError."""
    if not file:
        return None
    # Imported here, because only a scheduler that signs needs it.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(Path(file).read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as unusable:
        # TypeError: the key has a password.
        raise ConfigError(f"signing key {file!r} cannot be read: {unusable}") from unusable
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"signing key {file!r} is not an ed25519 key")
    own_id = key_id(key.public_key().public_bytes_raw())
    _log.info("assignments are signed", key=own_id)
    return SigningKey(key, own_id)


class PolicyCheck:
    """Reports whether admission policies protect the annotations that this scheduler writes and reads.

    The states are a metric, a condition of the scheduler's ``pod`` (``namespace/name``, empty for none), and logged
    when they change. No decision depends on them. ``states`` are the last ones.
    """

    def __init__(self, client: Client, pod: str) -> None:
        self._client, self._pod = client, pod
        self.states: Mapping[str, PolicyState] = {}

    async def run(self) -> None:
        """Check now and at each interval; never return."""
        while True:
            await self.check()
            is_known = all(state.state != "unknown" for state in self.states.values())
            await asyncio.sleep(_INTERVAL_S if self.states and is_known else _SHORT_INTERVAL_S)

    async def check(self) -> None:
        states = await read_policies(self._client)
        for policy, policy_state in states.items():
            for state in STATES:
                _POLICIES.labels(policy, state).set(state == policy_state.state)
        if states != self.states:
            _log_policies(states)
            self.states = states if await self._set_condition(states) else {}

    async def _set_condition(self, states: Mapping[str, PolicyState]) -> bool:
        """Set the pod's condition; return whether nothing is left to do."""
        if not self._pod:
            return True
        patch = condition_patch({}, policy_condition(states, timestamp()))
        try:
            await self._client.request("PATCH", f"{pod_path(self._pod)}/status", patch, STRATEGIC_PATCH)
        except KubeError as error:
            _log.warning("condition not set", pod=self._pod, reason=str(error))
            return False
        return True


def policy_condition(states: Mapping[str, PolicyState], now: str) -> dict[str, object]:
    """Return the pod's condition: True if every policy is bound, False if one is known not to be, otherwise Unknown."""
    faults = {name: state for name, state in states.items() if state.state != "bound"}
    message = "; ".join(f"{name}: {state.why}" for name, state in faults.items())[:_MAX_MESSAGE]
    if not faults:
        return condition(CONDITION, "True", "Bound", message, now)
    if any(state.state != "unknown" for state in faults.values()):
        return condition(CONDITION, "False", "NotBound", message, now)
    return condition(CONDITION, "Unknown", "NotKnown", message, now)


def _log_policies(states: Mapping[str, PolicyState]) -> None:
    if all(state.state == "bound" for state in states.values()):
        _log.info("admission policies are bound", policies=sorted(states))
    for name, state in states.items():
        if state.state == "unknown":
            _log.warning("cannot determine whether the admission policy is bound", policy=name, reason=state.why)
        elif state.state != "bound":
            _log.error("admission policy is not enforced", policy=name, reason=state.why)
