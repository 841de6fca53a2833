"""Report whether admission policies protect the annotations that this scheduler writes and reads.

Each is read at the start and every ten minutes, or every minute while a state is unknown. The states are a metric, and
a change of them is logged. If the scheduler's own pod is configured, they are also a condition of that pod. No decision
depends on them.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import structlog
from prometheus_client import Gauge

from mooring.kube.admission_policies import read_policies
from mooring.kube.client import STRATEGIC_PATCH, Client
from mooring.kube.failures import KubeError
from mooring.kube.guard import STATES, PolicyState
from scheduler.server.reporting.writer import timestamp

# A condition type of our own on a pod; it has a prefix, like those of readiness gates.
CONDITION = "mooring.dev/AdmissionPoliciesBound"
INTERVAL_S, SOONER_S = 600.0, 60.0
_POLICIES = Gauge(
    "mooring_admission_policies",
    "1 for the state of an admission policy: bound, missing, unbound (it does not deny) or unknown",
    ["policy", "state"],
)
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class OwnPod:
    """The scheduler's own pod; an empty name means none."""

    namespace: str
    name: str


class PolicyCheck:
    """The check by one client; ``states`` are those that it found last."""

    def __init__(self, client: Client, pod: OwnPod) -> None:
        self._client = client
        self._pod = pod
        self.states: Mapping[str, PolicyState] = {}

    async def run(self) -> None:
        """Check now and at each interval; never return."""
        while True:
            await self.check()
            is_known = all(state.state != "unknown" for state in self.states.values())
            await asyncio.sleep(INTERVAL_S if self.states and is_known else SOONER_S)

    async def check(self) -> None:
        states = await read_policies(self._client)
        for policy, policy_state in states.items():
            for state in STATES:
                _POLICIES.labels(policy, state).set(state == policy_state.state)
        if states != self.states:
            _tell(states)
            self.states = states if await self._set_condition(states) else {}

    async def _set_condition(self, states: Mapping[str, PolicyState]) -> bool:
        """Set the pod's condition; return whether nothing is left to do."""
        if not self._pod.name:
            return True
        path = f"/api/v1/namespaces/{self._pod.namespace}/pods/{self._pod.name}/status"
        patch = {"status": {"conditions": [condition(states, timestamp())]}}
        try:
            await self._client.request("PATCH", path, msgspec.json.encode(patch), STRATEGIC_PATCH)
        except KubeError as refused:
            _log.warning("condition not set", pod=f"{self._pod.namespace}/{self._pod.name}", reason=str(refused))
            return False
        return True


def condition(states: Mapping[str, PolicyState], now: str) -> dict[str, str]:
    """Return the pod's condition: True if every policy is bound, False if one is known not to be, otherwise Unknown."""
    faults = {name: state for name, state in states.items() if state.state != "bound"}
    is_known = any(state.state != "unknown" for state in faults.values())
    return {
        "type": CONDITION,
        "status": "True" if not faults else "False" if is_known else "Unknown",
        "reason": "Bound" if not faults else "NotBound" if is_known else "NotKnown",
        "message": "; ".join(f"{name}: {state.why}" for name, state in faults.items())[:1024],
        "lastTransitionTime": now,
    }


def _tell(states: Mapping[str, PolicyState]) -> None:
    if all(state.state == "bound" for state in states.values()):
        _log.info("admission policies are bound", policies=sorted(states))
    for name, state in states.items():
        if state.state == "unknown":
            _log.warning("cannot determine whether the admission policy is bound", policy=name, reason=state.why)
        elif state.state != "bound":
            _log.error("admission policy is not enforced", policy=name, reason=state.why)
