"""A pod as affinity rules see it: its namespace and labels, and its affinity and anti-affinity terms.

Equal pods (replicas) have equal `AffinityInfo`, which is shared, so that 100,000 pods take no more memory than their
workloads.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from sys import intern

import msgspec

from scheduler.kube.objects import Pod, PodAffinity, PodAffinityTerm
from scheduler.kube.selectors import NOTHING, Selector, read_selector


class Scope(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """The pods that ``selector`` selects in ``namespaces``, and in those whose labels ``within`` selects."""

    selector: Selector
    namespaces: frozenset[str]
    within: Selector = NOTHING

    def covers(self, namespace: str, namespace_labels: Mapping[str, str]) -> bool:
        return namespace in self.namespaces or self.within.matches(namespace_labels)


class Term(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """One affinity or anti-affinity term: these pods, in the same domain of the node label ``key``."""

    key: str
    scope: Scope


class AffinityInfo(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """A pod as other pods' terms and constraints see it.

    ``preferred`` are its preferred terms with their weights, those of anti-affinity below zero. ``terminating`` pods do
    not count for topology spread.
    """

    namespace: str
    labels: tuple[tuple[str, str], ...] = ()
    required_affinity: tuple[Term, ...] = ()
    required_anti_affinity: tuple[Term, ...] = ()
    preferred: tuple[tuple[Term, int], ...] = ()
    terminating: bool = False


NO_AFFINITY = AffinityInfo("")


def read_affinity_info(pod: Pod) -> AffinityInfo:
    """Return a pod's affinity info; raise ValueError in words for a malformed term."""
    affinity, bare = pod.spec.affinity, without_terms(pod)
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return bare
    toward, away = affinity.pod_affinity or PodAffinity(), affinity.pod_anti_affinity or PodAffinity()
    affinity_info = AffinityInfo(
        bare.namespace,
        bare.labels,
        tuple(_read_term(term, bare) for term in toward.required or ()),
        tuple(_read_term(term, bare) for term in away.required or ()),
        (*_weighted(toward, bare, 1), *_weighted(away, bare, -1)),
        bare.terminating,
    )
    return _shared(affinity_info)


def without_terms(pod: Pod) -> AffinityInfo:
    """Return a pod's affinity info without terms: what remains of a pod whose terms are malformed."""
    labels = pod.metadata.labels or {}
    gone = pod.metadata.deletion_timestamp is not None
    return _shared(AffinityInfo(pod.metadata.namespace, tuple(sorted(labels.items())), terminating=gone))


@lru_cache(maxsize=1 << 14)
def _shared(affinity_info: AffinityInfo) -> AffinityInfo:
    """Return the equal instance that is known already; its strings are kept once."""
    labels = tuple((intern(key), intern(value)) for key, value in affinity_info.labels)
    return msgspec.structs.replace(affinity_info, namespace=intern(affinity_info.namespace), labels=labels)


@lru_cache(maxsize=1 << 14)
def _shared_term(term: Term) -> Term:
    """Return the equal term that is known already: pods with different labels still have terms in common."""
    return term


def _weighted(affinity: PodAffinity, pod: AffinityInfo, sign: int) -> Iterator[tuple[Term, int]]:
    for one in affinity.preferred or ():
        if not 1 <= one.weight <= 100:
            raise ValueError(f"preferred pod affinity: weight {one.weight} is not from 1 to 100")
        yield _read_term(one.term, pod), sign * one.weight


def _read_term(term: PodAffinityTerm, pod: AffinityInfo) -> Term:
    """Read a term of a pod: without namespaces and a namespace selector, it applies to the pod's own namespace."""
    if not term.topology_key:
        raise ValueError("pod affinity term: topologyKey is missing")
    selector = read_selector(term.label_selector).with_labels(
        term.match_label_keys or (), term.mismatch_label_keys or (), dict(pod.labels)
    )
    named: Iterable[str] = term.namespaces or ()
    if not named and term.namespace_selector is None:
        named = (pod.namespace,)
    scope = Scope(selector, frozenset(named), read_selector(term.namespace_selector))
    return _shared_term(Term(intern(term.topology_key), scope))
