"""A pod as affinity rules read it: its namespace and labels, and its affinity and anti-affinity terms.

Equal pods (replicas) share one `AffinityInfo`, so that 100,000 pods take no more memory than their workloads.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from sys import intern
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary, ref

import msgspec

from scheduler.kube.objects import Pod, PodAffinity, PodAffinityTerm
from scheduler.kube.selection.selectors import MOST_EXPRESSIONS, NOTHING, Selector, expressions_of, read_selector

T = TypeVar("T", bound=Hashable)
# Limits on a pod's labels, with which every selector may be compared; on its terms, each of which is compared with
# every pod; and on what the terms name together: labels, expressions and namespaces.
MOST_LABELS, MOST_TERMS, MOST_REQUIREMENTS = 1000, 64, MOST_EXPRESSIONS


class Scope(msgspec.Struct, frozen=True, cache_hash=True, gc=False):
    """The pods that ``selector`` selects in ``namespaces``, and in those whose labels ``within`` selects."""

    selector: Selector
    namespaces: frozenset[str]
    within: Selector = NOTHING

    def covers(self, namespace: str, namespace_labels: Mapping[str, str]) -> bool:
        return namespace in self.namespaces or self.within.matches(namespace_labels)


class Term(msgspec.Struct, frozen=True, cache_hash=True, weakref=True):
    """One affinity or anti-affinity term: these pods, in the same domain of the node label ``key``."""

    key: str
    scope: Scope


class AffinityInfo(msgspec.Struct, frozen=True, cache_hash=True, weakref=True):
    """A pod as other pods' terms and constraints read it.

    ``preferences`` are its preferred terms with their weights, those of anti-affinity below zero. A pod that
    ``is_terminating`` does not count for topology spread.
    """

    namespace: str
    labels: tuple[tuple[str, str], ...] = ()
    required_affinity: tuple[Term, ...] = ()
    required_anti_affinity: tuple[Term, ...] = ()
    preferences: tuple[tuple[Term, int], ...] = ()
    is_terminating: bool = False


NO_AFFINITY = AffinityInfo("")


def read_affinity_info(pod: Pod) -> AffinityInfo:
    """Return a pod's affinity info; raise ValueError for a malformed term, or for too many terms or labels."""
    _check_limits(pod)
    affinity, info = pod.spec.affinity, without_terms(pod)
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return info
    toward, against = affinity.pod_affinity or PodAffinity(), affinity.pod_anti_affinity or PodAffinity()
    info_with_terms = msgspec.structs.replace(
        info,
        required_affinity=tuple(_read_term(term, info) for term in toward.required or ()),
        required_anti_affinity=tuple(_read_term(term, info) for term in against.required or ()),
        preferences=(*_weigh(toward, info, 1), *_weigh(against, info, -1)),
    )
    return _affinity_infos.intern(info_with_terms)


def without_terms(pod: Pod) -> AffinityInfo:
    """Return a pod's affinity info without terms, and without labels beyond the limit; possible for any pod."""
    labels = pod.metadata.labels or {}
    if len(labels) > MOST_LABELS:
        labels = {}
    is_terminating = pod.metadata.deletion_timestamp is not None
    info = AffinityInfo(pod.metadata.namespace, tuple(sorted(labels.items())), is_terminating=is_terminating)
    return _affinity_infos.intern(info, _intern_texts)


def _intern_texts(info: AffinityInfo) -> AffinityInfo:
    labels = tuple((intern(key), intern(value)) for key, value in info.labels)
    return msgspec.structs.replace(info, namespace=intern(info.namespace), labels=labels)


class InternPool(Generic[T]):
    """One instance of equal values as long as it is in use; their type allows weak references, and caches its hash.

    A cache of recent values would keep what is deleted, and users could choose its size.
    """

    def __init__(self) -> None:
        self._references: WeakKeyDictionary[T, ref[T]] = WeakKeyDictionary()

    def intern(self, value: T, prepare: Callable[[T], T] = lambda value: value) -> T:
        """Return the equal instance if there is one; otherwise this one, as ``prepare`` returns it."""
        reference = self._references.get(value)
        instance = reference() if reference is not None else None
        if instance is None:
            instance = prepare(value)
            self._references[instance] = ref(instance)
        return instance


# Pods with different labels can still have terms in common.
_affinity_infos, _terms = InternPool[AffinityInfo](), InternPool[Term]()


def _check_limits(pod: Pod) -> None:
    if (labels := len(pod.metadata.labels or ())) > MOST_LABELS:
        raise ValueError(f"{labels} labels exceed the limit of {MOST_LABELS}")
    terms = list(_all_terms(pod))
    if len(terms) > MOST_TERMS:
        raise ValueError(f"{len(terms)} pod affinity terms exceed the limit of {MOST_TERMS}")
    if (requirements := sum(map(_requirements, terms))) > MOST_REQUIREMENTS:
        raise ValueError(f"{requirements} requirements of pod affinity terms exceed the limit of {MOST_REQUIREMENTS}")


def _all_terms(pod: Pod) -> Iterator[PodAffinityTerm]:
    affinity = pod.spec.affinity
    for part in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else ():
        if part is not None:
            yield from part.required or ()
            yield from (preference.term for preference in part.preferred or ())


def _requirements(term: PodAffinityTerm) -> int:
    """Return how many labels, expressions and namespaces a term names."""
    names = (term.match_label_keys, term.mismatch_label_keys, term.namespaces)
    selectors = (term.label_selector, term.namespace_selector)
    return sum(len(part or ()) for part in names) + sum(map(expressions_of, selectors))


def _weigh(affinity: PodAffinity, pod: AffinityInfo, sign: int) -> Iterator[tuple[Term, int]]:
    for preference in affinity.preferred or ():
        if not 1 <= preference.weight <= 100:
            raise ValueError(f"preferred pod affinity: weight {preference.weight} is not from 1 to 100")
        yield _read_term(preference.term, pod), sign * preference.weight


def _read_term(term: PodAffinityTerm, pod: AffinityInfo) -> Term:
    """Read a term of a pod; without namespaces and a namespace selector, it applies to the pod's own namespace."""
    if not term.topology_key:
        raise ValueError("pod affinity term: topologyKey is missing")
    selector = read_selector(term.label_selector).with_labels(
        term.match_label_keys or (), term.mismatch_label_keys or (), dict(pod.labels)
    )
    default = [pod.namespace] if term.namespace_selector is None else []
    scope = Scope(selector, frozenset(term.namespaces or default), read_selector(term.namespace_selector))
    return _terms.intern(Term(intern(term.topology_key), scope))
