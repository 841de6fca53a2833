"""The members that a decision about a group has tried: on their nodes in the cache, or off them for a while. Pure.

What it takes: a search and where a member goes. What it does: the cache counts the member there, volumes included, so
that later ones see what is left. What it must never do: leave a member in the cache that ``search.placed`` lacks.
"""

from scheduler.cache.cache import Cache
from scheduler.cycle.decisions import Bind
from scheduler.cycle.groups.search import GroupSearch
from scheduler.cycle.groups.slices import PUT_BACK


class TriedMembers:
    """Puts members on their nodes, and takes them off."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def put_on(self, search: GroupSearch, bind: Bind, now: float) -> None:
        """Count a member on its node."""
        self._cache.assume(bind.assigned, now)
        if bind.plan is not None:
            self._cache.volumes.assume(bind.pod_info.uid, bind.plan, is_tried=True)
        search.placed[bind.pod_info.uid] = bind

    def take_off(self, bind: Bind) -> None:
        """Count a member on no node any more; the caller takes it out of ``search.placed``."""
        self._cache.retract(bind.assigned)
        if bind.plan is not None:
            self._cache.volumes.forget(bind.pod_info.uid)

    def take_off_all(self, search: GroupSearch) -> None:
        """Take off all members, for good."""
        for bind in search.placed.values():
            self.take_off(bind)
        search.placed.clear()
        search.aside.clear()

    def set_aside(self, search: GroupSearch) -> None:
        """Take off all members until the decision goes on."""
        for bind in search.placed.values():
            self.take_off(bind)
        search.aside.extendleft(reversed(search.placed.values()))
        search.placed.clear()

    def put_back(self, search: GroupSearch, now: float) -> None:
        """Put some of those that are set aside back where they were."""
        for _ in range(min(PUT_BACK, len(search.aside))):
            self.put_on(search, search.aside.popleft(), now)
