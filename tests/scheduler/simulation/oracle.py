"""An independent oracle of what fits where: every placement tried, nothing shared with the scheduler."""

import itertools
from collections.abc import Iterable, Sequence

from mooring import names
from mooring.annotations.inventory import Inventory, read_inventory
from mooring.annotations.rates import PodRates, read_rates, read_rates_in_force
from mooring.annotations.request import VfRequest, read_request
from mooring.errors import AnnotationError
from tests.scheduler.simulation import fake_units
from tests.scheduler.simulation.api import Json
from tests.scheduler.simulation.cluster import CPUS, PodState, on_cable


def placeable(pod: PodState, nodes: dict[str, Json], live: Sequence[PodState]) -> str:
    """Return a node on which a pod fits for certain as things are; empty if there is none."""
    try:
        request = read_request(pod.annotations)
    except AnnotationError:
        return ""
    wanted = request.interfaces if request else ()
    for name, node in nodes.items():
        there = [one for one in live if one.node == name]
        if (
            is_ready(node)
            and has_cpu(pod, there)
            and vfs_fit(wanted, node, there)
            and _units_fit(pod.wanted_units, node, there)
        ):
            return name
    return ""


def is_ready(node: Json) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions") or ())


def has_cpu(pod: PodState, there: Iterable[PodState]) -> bool:
    return _cpu(pod) + sum(map(_cpu, there)) <= 1000 * CPUS


def _cpu(pod: PodState) -> int:
    text: str = pod.document["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    return int(text[:-1]) if text.endswith("m") else 1000 * int(text)


def _units_fit(wanted: int, node: Json, there: Sequence[PodState]) -> bool:
    taken = {unit for pod in there for unit in pod.units}
    return not wanted or (_is_of_this_boot(node) and len(taken) + wanted <= fake_units.UNITS)


def _is_of_this_boot(node: Json) -> bool:
    boot = read_inventory(node["metadata"]["annotations"][names.INVENTORY]).boot
    return bool(boot == node["status"]["nodeInfo"]["bootID"])


def vfs_fit(wanted: Sequence[VfRequest], node: Json, there: Sequence[PodState]) -> bool:
    """Return whether these interfaces fit together on a node beside the pods there."""
    if not wanted:
        return True
    if not _is_of_this_boot(node):
        return False
    inventory = read_inventory(node["metadata"]["annotations"][names.INVENTORY])
    free, rate = _left(inventory, node, there)
    pfs = range(len(inventory.pfs))
    return any(_fits(wanted, choice, inventory, free, rate) for choice in itertools.product(pfs, repeat=len(wanted)))


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


def _left(inventory: Inventory, node: Json, there: Sequence[PodState]) -> tuple[list[int], list[int]]:
    free, rate = [], []
    for pf in inventory.pfs:
        # A withheld VF reserves what it is still limited to, whoever claims it besides.
        kept = {index: out.min_tx_rate for out in pf.out if out.min_tx_rate for index in out.vfs}
        held: dict[int, int] = {}
        claims = [one for pod in there for one in zip(pod.vfs, reserved_by(pod, allocated(pod), node), strict=True)]
        for vf, mbps in claims:
            if vf.pf == pf.name:
                held[vf.vf] = max(held.get(vf.vf, 0), mbps)
        free.append(len(set(pf.usable) - held.keys()))
        reserved = {index: max(held.get(index, 0), kept.get(index, 0)) for index in {*held, *kept}}
        rate.append(sum(reserved.values()))
    taken = {pf.name: reserved for pf, reserved in zip(inventory.pfs, rate, strict=True)}
    cables = [on_cable(inventory, pf) for pf in inventory.pfs]
    return free, [min(pf.offer_mbps for pf in cable) - sum(taken[pf.name] for pf in cable) for cable in cables]


def _fits(
    wanted: Sequence[VfRequest], choice: Sequence[int], inventory: Inventory, free: list[int], rate: list[int]
) -> bool:
    for index, pf in enumerate(inventory.pfs):
        mine = [one for one, chosen in zip(wanted, choice, strict=True) if chosen == index]
        needed = sum(one.min_tx_rate for one in mine)
        names = {other.name for other in on_cable(inventory, pf)}
        together = sum(
            one.min_tx_rate for one, chosen in zip(wanted, choice, strict=True) if inventory.pfs[chosen].name in names
        )
        if len(mine) > free[index] or (needed and (together > rate[index] or not pf.up)):
            return False
        if any(one.network not in (None, pf.network) for one in mine):
            return False
    return True
