"""What is decided about a pod's volumes before they are bound, and the assumed plans that later decisions
read. Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from scheduler.kube.storage_objects import PersistentVolume, PersistentVolumeClaim


@dataclass(frozen=True, slots=True)
class Match:
    """An existing volume, chosen for a claim."""

    claim: PersistentVolumeClaim
    volume: PersistentVolume


@dataclass(frozen=True, slots=True)
class Provision:
    """A claim whose volume is to be provisioned for a node; if members of a group share it, for the node of one."""

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


# What is assumed about a claim or volume: its subject, and the claim's volume, the volume's claim or the claim's node.
_Fact = tuple[tuple[Literal["volume", "claim", "node"], str], str]


@dataclass(slots=True)
class VolumePlans:
    """Plans by pod uid that the API does not show yet; pods that share a claim have the same plan for it."""

    by_uid: dict[str, VolumePlan] = field(default_factory=dict)
    # The plans of the group decision in progress.
    trial_uids: set[str] = field(default_factory=set)
    # By subject, and by the uid of each pod.
    _facts: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)

    def copy(self) -> "VolumePlans":
        copy = VolumePlans()
        for uid, plan in self.by_uid.items():
            copy.add(uid, plan, is_tried=uid in self.trial_uids)
        return copy

    def add(self, uid: str, plan: VolumePlan, *, is_tried: bool = False) -> None:
        self.by_uid[uid] = plan
        if is_tried:
            self.trial_uids.add(uid)
        for subject, value in _facts_of(plan):
            self._facts.setdefault(subject, {})[uid] = value

    def drop(self, uid: str) -> None:
        self.trial_uids.discard(uid)
        for subject, _ in _facts_of(self.by_uid.pop(uid)):
            self._facts[subject].pop(uid)
            if not self._facts[subject]:
                del self._facts[subject]

    def volume_of(self, claim: str) -> str:
        """Return the volume that is assumed for a claim; empty if there is none."""
        return next(iter(self._facts.get(("volume", claim), {}).values()), "")

    def claim_of(self, volume: str) -> str:
        """Return the claim for which a volume is assumed; empty if there is none."""
        return next(iter(self._facts.get(("claim", volume), {}).values()), "")

    def node_of(self, claim: str) -> str:
        """Return the node for which a claim's volume is to be provisioned; empty if none was selected."""
        return next(iter(self._facts.get(("node", claim), {}).values()), "")

    def is_only_tried(self, claim: str) -> bool:
        """Return whether the plans for a claim's volume all belong to the decision in progress."""
        uids = self._facts.get(("node", claim), {}).keys()
        return bool(uids) and uids <= self.trial_uids


def _facts_of(plan: VolumePlan) -> Iterator[_Fact]:
    for match in plan.matches:
        yield ("volume", match.claim.key), match.volume.metadata.name
        yield ("claim", match.volume.metadata.name), match.claim.key
    for provision in plan.provisions:
        yield ("node", provision.claim.key), provision.node
