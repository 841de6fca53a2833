"""What is decided about a pod's volumes before they are bound, and the assumed plans that later decisions
read. Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from scheduler.kube.storage_objects import PersistentVolume, PersistentVolumeClaim


@dataclass(frozen=True, slots=True)
class Match:
    """An existing volume, chosen for a claim."""

    claim: PersistentVolumeClaim
    volume: PersistentVolume


@dataclass(frozen=True, slots=True)
class Provision:
    """A claim whose volume is to be provisioned for a node; if several members of a group share it, for the node of
    one.
    """

    claim: PersistentVolumeClaim
    node: str


@dataclass(frozen=True, slots=True)
class VolumePlan:
    """What must be written and carried out before a pod may be bound to a node."""

    node: str
    matches: tuple[Match, ...] = ()
    provisions: tuple[Provision, ...] = ()

    def claims(self) -> Iterator[str]:
        yield from (match.claim.key for match in self.matches)
        yield from (provision.claim.key for provision in self.provisions)

    def nodes(self) -> Iterator[str]:
        yield self.node
        yield from (provision.node for provision in self.provisions)


@dataclass(slots=True)
class AssumedVolumes:
    """Plans by pod uid that the API does not show yet; pods that share a claim have the same plan for it."""

    plans: dict[str, VolumePlan] = field(default_factory=dict)
    # The plans of the group decision in progress.
    trial_uids: set[str] = field(default_factory=set)
    _volumes: dict[str, dict[str, str]] = field(default_factory=dict)
    _claims: dict[str, dict[str, str]] = field(default_factory=dict)
    _nodes: dict[str, dict[str, str]] = field(default_factory=dict)

    def copy(self) -> "AssumedVolumes":
        copy = AssumedVolumes()
        for uid, plan in self.plans.items():
            copy.add(uid, plan, is_tried=uid in self.trial_uids)
        return copy

    def add(self, uid: str, plan: VolumePlan, *, is_tried: bool = False) -> None:
        self.plans[uid] = plan
        if is_tried:
            self.trial_uids.add(uid)
        for match in plan.matches:
            self._volumes.setdefault(match.claim.key, {})[uid] = match.volume.metadata.name
            self._claims.setdefault(match.volume.metadata.name, {})[uid] = match.claim.key
        for provision in plan.provisions:
            self._nodes.setdefault(provision.claim.key, {})[uid] = provision.node

    def drop(self, uid: str) -> VolumePlan | None:
        plan = self.plans.pop(uid, None)
        if plan is None:
            return None
        self.trial_uids.discard(uid)
        for match in plan.matches:
            _leave(self._volumes, match.claim.key, uid)
            _leave(self._claims, match.volume.metadata.name, uid)
        for provision in plan.provisions:
            _leave(self._nodes, provision.claim.key, uid)
        return plan

    def volume_of(self, claim: str) -> str:
        """Return the volume that is assumed for a claim; empty if there is none."""
        return next(iter(self._volumes.get(claim, {}).values()), "")

    def claim_of(self, volume: str) -> str:
        """Return the claim for which a volume is assumed; empty if there is none."""
        return next(iter(self._claims.get(volume, {}).values()), "")

    def node_of(self, claim: str) -> str:
        """Return the node for which a claim's volume is to be provisioned; empty if none was selected."""
        return next(iter(self._nodes.get(claim, {}).values()), "")

    def is_only_tried(self, claim: str) -> bool:
        """Return whether the plans for a claim's volume all belong to the decision in progress."""
        return bool(self._nodes.get(claim)) and self._nodes[claim].keys() <= self.trial_uids


def _leave(by_key: dict[str, dict[str, str]], key: str, uid: str) -> None:
    by_key[key].pop(uid)
    if not by_key[key]:
        del by_key[key]
