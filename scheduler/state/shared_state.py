"""State that the machine's parts share: the cluster, the waiting pods, and the groups of both. Pure."""

from scheduler.cache.cache import Cache
from scheduler.cache.groups.group_cache import GroupCache
from scheduler.constraints.kinds import Kinds
from scheduler.cycle.preemption.disruption_budgets import Budgets
from scheduler.pending.groups.group_reports import GroupReports
from scheduler.pending.groups.pending_groups import PendingGroups
from scheduler.pending.pending_pods import PendingPods
from scheduler.pending.reservations import Reservations
from scheduler.pending.run_times import RunTimes
from scheduler.pending.volume_waits import VolumeWaits
from scheduler.queue.queue import Queue
from scheduler.state.cluster_objects import ClusterObjects


class SharedState:
    """The caches and queues where a pod may be, each with those that it calls."""

    def __init__(self, scheduler_name: str, kinds: Kinds) -> None:
        self.scheduler_name = scheduler_name
        self.cache = Cache(kinds)
        self.budgets = Budgets()
        self.cluster_objects = ClusterObjects(self.cache.pod_counts, self.cache.nodes, self.budgets)
        # By uid the pods whose removal is ordered and not received yet.
        self.removals: set[str] = set()
        self.group_cache = GroupCache(self.removals)
        self.queue = Queue()
        self.run_times = RunTimes()
        self.reservations = Reservations(self.queue, self.run_times.end_of)
        self.volume_waits = VolumeWaits(self.cache.volumes, self.queue, self.cache.node)
        self.group_reports = GroupReports(self.cache, self.group_cache)
        self.pending_groups = PendingGroups(self.queue, self.group_reports, self.group_cache)
        self.pending_pods = PendingPods(
            self.cache, self.queue, self.reservations, self.volume_waits, self.pending_groups, self.group_cache, kinds
        )

    def check(self) -> None:
        self.cache.check()
        self.queue.check()
        self.pending_pods.check()
        self.group_cache.check(lambda uid: self.cache.assigned(uid) is not None)
