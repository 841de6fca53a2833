"""Scan the host whenever something may have changed, and hand on what it offers."""

import asyncio
from dataclasses import dataclass

import structlog

from advertiser.formats.lost_vf_event import lost_vfs
from advertiser.host.host_events import Changes
from advertiser.inventory.build_inventory import LeftOut
from advertiser.inventory.facts import Claims
from advertiser.publish.cluster_view import ClusterView
from advertiser.publish.lost_vf_reporter import Reporter
from advertiser.publish.metrics import Metrics
from advertiser.publish.node_resources import StatusResources
from advertiser.publish.publisher import Publisher
from advertiser.publish.scanner import Look, Looker
from mooring.inventory import dump_inventory

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Outlets:
    """What a look ends in: the inventory, the seeds' resources, events of VFs that are lost."""

    inventory: Publisher
    resources: StatusResources
    lost: Reporter


class Watching:
    """The loop that looks; ``last`` is the last look that gave an inventory."""

    def __init__(self, looker: Looker, view: ClusterView, outlets: Outlets) -> None:
        self._looker = looker
        self._view = view
        self._outlets = outlets
        self._left_out: tuple[LeftOut, ...] = ()
        self._looked_s = float("-inf")
        self.metrics = Metrics(self.age_s)
        self.last: Look | None = None

    def age_s(self) -> float:
        """Return how long ago the last good look was, in seconds of the event loop's clock."""
        return asyncio.get_running_loop().time() - self._looked_s

    async def look(self) -> Look:
        """Look once, now; raise OSError if the host cannot be read."""
        return await asyncio.to_thread(self._looker.look, self._view.claims or Claims())

    async def run(self, changes: Changes, resync_s: float) -> None:
        """Look after every change and at least every ``resync_s`` seconds; return never."""
        while True:
            try:
                # Before both lists are there an inventory would be partial.
                if self._view.claims is not None:
                    self._take(await self.look())
            except Exception:  # noqa: BLE001 - the one of this program
                # Whatever is wrong with this host now, what was published stands and the next look may mend it.
                _log.exception("host cannot be read, the last inventory stands")
                self.metrics.failed()
            await changes.wait(resync_s)

    def _take(self, look: Look) -> None:
        self.last = look
        self._looked_s = asyncio.get_running_loop().time()
        self.metrics.looked(look.survey)
        self._outlets.inventory.want(dump_inventory(look.survey.inventory))
        self._outlets.resources.want(look.resources, look.survey.inventory)
        self._outlets.lost.saw(frozenset(lost_vfs(look.survey.inventory, look.host)))
        if look.survey.left_out != self._left_out:
            self._left_out = look.survey.left_out
            for device in self._left_out:
                _log.warning("device is left out", pci=device.pci, name=device.name, reason=device.why)
