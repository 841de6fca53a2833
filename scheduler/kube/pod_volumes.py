"""The claims of a pod, which restrict its nodes. Pure."""

import msgspec

from scheduler.kube.objects import Pod

# Each claim is looked up on every node.
MOST_CLAIMS = 256


class ClaimUse(msgspec.Struct, frozen=True, gc=False):
    """A claim by key (namespace/name); ``owner`` is the pod's uid if the claim must belong to the pod."""

    key: str
    owner: str = ""

    @property
    def name(self) -> str:
        return self.key.partition("/")[2]


def read_claims(pod: Pod) -> tuple[ClaimUse, ...]:
    """Return the claims of a pod's volumes; raise ValueError if there are too many."""
    claims: list[ClaimUse] = []
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            claims.append(ClaimUse(f"{pod.metadata.namespace}/{volume.persistent_volume_claim.claim_name}"))
        elif volume.ephemeral is not None:
            claims.append(ClaimUse(f"{pod.metadata.namespace}/{pod.metadata.name}-{volume.name}", pod.metadata.uid))
    if len(claims) > MOST_CLAIMS:
        raise ValueError(f"{len(claims)} volume claims exceed the limit of {MOST_CLAIMS}")
    return tuple(dict.fromkeys(claims))
