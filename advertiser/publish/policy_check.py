"""Check that this node's advertiser can write nothing in the cluster but its own node's inventory.

RBAC cannot distinguish the advertisers of different nodes; the admission policy `mooring-inventory` does. To test the
policy, the check changes an annotation that an advertiser must not write, as a dry run: admission policies evaluate it
like any other write, but nothing is stored. The check needs no further permissions.
"""

import asyncio
from typing import Literal

import structlog

from advertiser.publish.metrics import Metrics
from advertiser.publish.publisher import node_path
from mooring.kube.client import MERGE_PATCH, Client
from mooring.kube.failures import KubeError, NotFound, Refused

POLICY = "mooring-inventory"
INTERVAL_S, SOONER_S = 600.0, 60.0
_PROBE = b'{"metadata":{"annotations":{"mooring.dev/policy-probe":"refuse this"}}}'
_log = structlog.get_logger()
PolicyState = Literal["bound", "missing", "unknown"]


class PolicyCheck:
    """Checks the policy with the advertiser's client on its own node; ``state`` is the last result."""

    def __init__(self, client: Client, node: str, metrics: Metrics) -> None:
        self._client = client
        self._node = node
        self._metrics = metrics
        self.state: PolicyState | None = None

    async def run(self) -> None:
        """Check now and regularly; never return."""
        while True:
            await self.check()
            await asyncio.sleep(INTERVAL_S if self.state == "bound" else SOONER_S)

    async def check(self) -> None:
        """Check once, and log a changed result."""
        state, why = await self._try()
        self._metrics.policy(POLICY, state)
        if state != self.state:
            if state == "bound":
                _log.info("admission policy is bound", policy=POLICY, node=self._node)
            elif state == "missing":
                _log.error("admission policy is not enforced", policy=POLICY, node=self._node, reason=why)
            else:
                _log.warning("cannot determine whether the admission policy is bound", policy=POLICY, reason=why)
        self.state = state

    async def _try(self) -> tuple[PolicyState, str]:
        try:
            await self._client.request("PATCH", node_path(self._node), _PROBE, MERGE_PATCH, {"dryRun": "All"})
        except NotFound:
            return "unknown", "the node does not exist yet"
        except Refused as error:
            return ("bound", "") if POLICY in error.status.message else ("unknown", str(error))
        except KubeError as error:
            return "unknown", str(error)
        return "missing", "this account can write other annotations of this node and of every other node"
