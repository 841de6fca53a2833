"""An independent oracle of what fits where: every placement tried, nothing shared with the scheduler."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from mooring import names
from mooring.annotations.inventory import Inventory, Pf, read_inventory
from mooring.annotations.rates import PodRates, read_rates, read_rates_in_force
from mooring.annotations.request import VfRequest, read_request
from mooring.errors import AnnotationError
from tests.scheduler.simulation.api import Json
from tests.scheduler.simulation.cluster import BOXES, CPUS, PodState, cable_of


def placement(pod: PodState, count: int, nodes: dict[str, Json], live: Sequence[PodState]) -> tuple[str, ...]:
    """Return nodes on which so many pods equal to this one fit for certain as things are; empty if there are none."""
    try:
        request = read_request(pod.annotations)
    except AnnotationError:
        return ()
    wanted = request.interfaces if request else ()
    ready = [name for name, node in nodes.items() if is_ready(node)]
    for chosen in itertools.combinations_with_replacement(ready, count):
        if all(_fit(pod, wanted, chosen.count(name), nodes[name], live) for name in set(chosen)):
            return chosen
    return ()


def _fit(pod: PodState, wanted: Sequence[VfRequest], count: int, node: Json, live: Sequence[PodState]) -> bool:
    there = [one for one in live if one.node == node["metadata"]["name"]]
    return (
        has_cpu(pod, [*there, *[pod] * (count - 1)])
        and _vfs_fit([*wanted] * count, node, there)
        and _units_fit(pod.wanted_units * count, node, there)
    )


def is_ready(node: Json) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions") or ())


def has_cpu(pod: PodState, there: Iterable[PodState]) -> bool:
    return pod.cpu + sum(one.cpu for one in there) <= 1000 * CPUS


def _units_fit(wanted: int, node: Json, there: Sequence[PodState]) -> bool:
    taken = {unit for pod in there for unit in pod.units}
    return not wanted or (_is_of_this_boot(node) and len(taken) + wanted <= len(BOXES))


def _is_of_this_boot(node: Json) -> bool:
    boot = read_inventory(node["metadata"]["annotations"][names.INVENTORY]).boot
    return bool(boot == node["status"]["nodeInfo"]["bootID"])


def _vfs_fit(wanted: Sequence[VfRequest], node: Json, there: Sequence[PodState]) -> bool:
    """Return whether these interfaces fit together on a node beside the pods there."""
    if not wanted:
        return True
    if not _is_of_this_boot(node):
        return False
    inventory = read_inventory(node["metadata"]["annotations"][names.INVENTORY])
    free, rate = _left(inventory, node, there)
    choices = itertools.product(inventory.pfs, repeat=len(wanted))
    return any(_fits([*zip(wanted, choice, strict=True)], inventory, free, rate) for choice in choices)


def allocated(pod: PodState) -> PodRates | None:
    """Return the rates that a pod has been given after its assignment, as the API has them."""
    text = pod.annotations.get(names.RATES)
    if text is None or pod.claim is None:
        return None
    try:
        rates = read_rates(text)
    except AnnotationError:
        return None
    is_its_own = (rates.uid, rates.node, len(rates.rates)) == (pod.uid, pod.node, len(pod.vfs))
    return rates if is_its_own else None


def in_force(pod: PodState, node: Json) -> int | None:
    """Return which generation of a pod's rates its node says to be in force."""
    text = (node.get("metadata", {}).get("annotations") or {}).get(names.RATES_IN_FORCE)
    return None if text is None or not _says_rates(node) else read_rates_in_force(text).generations.get(pod.uid)


def _says_rates(node: Json) -> bool:
    """Return whether a node says that it changes rates."""
    text = (node.get("metadata", {}).get("annotations") or {}).get(names.INVENTORY)
    return text is not None and read_inventory(text).rates


def reserved_by(pod: PodState, rates: PodRates | None, node: Json) -> tuple[int, ...]:
    """Return what each VF of a pod reserves that was given these rates after its assignment."""
    if rates is None:
        return tuple(vf.min_tx_rate for vf in pod.vfs)
    if in_force(pod, node) == rates.generation:
        return tuple(one.min_tx_rate or 0 for one in rates.rates)
    if _says_rates(node):
        return rates.reserved
    return tuple(max(vf.min_tx_rate, mbps) for vf, mbps in zip(pod.vfs, rates.reserved, strict=True))


def _left(inventory: Inventory, node: Json, there: Sequence[PodState]) -> tuple[dict[str, int], dict[str, int]]:
    """Return by PF how many VFs are free, and what rate is left on its cable."""
    claims = [one for pod in there for one in zip(pod.vfs, reserved_by(pod, allocated(pod), node), strict=True)]
    free, taken = {}, {}
    for pf in inventory.pfs:
        held = {vf.vf for vf, _ in claims if vf.pf == pf.name}
        # A withheld VF reserves what it is still limited to, whoever claims it besides.
        reserved = Counter({index: out.min_tx_rate or 0 for out in pf.out for index in out.vfs})
        for vf, mbps in claims:
            reserved |= Counter({vf.vf: mbps} if vf.pf == pf.name else {})
        free[pf.name], taken[pf.name] = len(set(pf.usable) - held), reserved.total()
    cables = {pf.name: cable_of(inventory, pf) for pf in inventory.pfs}
    return free, {
        name: min(pf.offer_mbps for pf in cable) - sum(taken[pf.name] for pf in cable) for name, cable in cables.items()
    }


def _fits(
    choice: Sequence[tuple[VfRequest, Pf]], inventory: Inventory, free: Mapping[str, int], rate: Mapping[str, int]
) -> bool:
    for pf in inventory.pfs:
        mine, cable = [one for one, chosen in choice if chosen == pf], cable_of(inventory, pf)
        together = sum(one.min_tx_rate for one, chosen in choice if chosen in cable)
        if len(mine) > free[pf.name] or any(one.network not in (None, pf.network) for one in mine):
            return False
        if any(one.min_tx_rate for one in mine) and (together > rate[pf.name] or not pf.up):
            return False
    return True
