"""The pods without a node that use claims, indexed by claim: a claim's events concern them only. Pure."""

from collections.abc import Iterable

from scheduler.kube.pod_volumes import NO_VOLUMES, PodVolumes


class ClaimIndex:
    """Pods by uid, with what they use."""

    def __init__(self) -> None:
        self._volumes: dict[str, PodVolumes] = {}
        self._by_claim: dict[str, set[str]] = {}

    def put(self, uid: str, volumes: PodVolumes) -> None:
        """Add a pod, or replace its entry."""
        self.drop(uid)
        if volumes.claims:
            self._volumes[uid] = volumes
        for claim in volumes.claims:
            self._by_claim.setdefault(claim.key, set()).add(uid)

    def drop(self, uid: str) -> None:
        for claim in self._volumes.pop(uid, NO_VOLUMES).claims:
            self._by_claim[claim.key].discard(uid)
            if not self._by_claim[claim.key]:
                del self._by_claim[claim.key]

    def for_claims(self, claims: Iterable[str]) -> list[str]:
        """Return the pods that use any of these."""
        return sorted({uid for claim in claims for uid in self._by_claim.get(claim, ())})
