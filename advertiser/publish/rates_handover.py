"""Hand the changed rates of this node's pods to the CNI server, and publish which of them are in force.

A watch follows this node's pods and keeps their two annotations about rates. While a pod exists, its rates are in a
file of the run folder (`mooring.records.rates_exchange`); the CNI server decides whether to accept them. The advertiser
publishes the generations that the server reports as in force, for pods that exist. It publishes nothing before the pods
were listed, nor before the server has reported since boot: until then the node keeps its annotation.

The inventory says whether the node changes rates. Advertisers of earlier versions omit that, and then the published
generations no longer count. Meanwhile VFs can get their assignment's rates, which no published generation describes, so
the scheduler reserves those, too, until the inventory says that the node changes rates. It says so once everything that
the server has recorded is in force and published. A restarted advertiser continues with what the inventory says.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import structlog

from advertiser.publish.publisher import Publisher
from advertiser.publish.scanner import record
from mooring import names
from mooring.annotations.inventory import read_inventory
from mooring.annotations.rates import RatesInForce, dump_rates_in_force
from mooring.errors import AnnotationError
from mooring.folders import record_names
from mooring.kube.client import Client
from mooring.kube.events import Changed, Event, Removed, Synced
from mooring.kube.watch import Decoder, watch
from mooring.records import rates_record
from mooring.records.rates_exchange import HANDED_OVER, LISTED, HandedOverRates, RatesState, dump_handed_over

_log = structlog.get_logger()


class _Metadata(msgspec.Struct, rename="camel"):
    deletion_timestamp: str | None = None
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


_decode_pod = Decoder(_Pod)


class RatesHandOver:
    """Passes the changed rates of one node's pods to the CNI server, and its reports to the node object."""

    def __init__(
        self, client: Client, node: str, run: Path, publisher: Publisher, notify: Callable[[], None] = lambda: None
    ) -> None:
        self._client = client
        self._node = node
        self._folder, self._listed = run / HANDED_OVER, run / LISTED
        self._publisher = publisher
        self._notify = notify
        self._says_so: bool | None = None
        self._given: dict[str, HandedOverRates] | None = None
        self._leaving: set[str] = set()
        self._states: Mapping[str, RatesState] | None = None
        self._refused = ""

    async def run(self) -> None:
        """Watch the pods; never return."""
        selected = {"fieldSelector": f"spec.nodeName={self._node}"}
        async for event in watch(self._client, "/api/v1/pods", _decode_pod, selected):
            self._take(event)
            self._hand_over()
            self._publish()
            if self._says_so is False or isinstance(event, Synced):
                self._notify()

    def says_so(self, inventory: str | None, *, is_served: bool) -> bool:
        """Return whether the inventory should say that the node changes rates.

        ``inventory`` is the published one. ``is_served`` is False if the CNI server is of a version that changes none.
        """
        if self._says_so is None:
            self._says_so = _has_said_so(inventory)
        self._says_so = is_served and (self._says_so or (self._is_all_in_force() and self._publisher.published))
        return self._says_so

    def _is_all_in_force(self) -> bool:
        given = {} if self._given is None else self._given
        return self._states is not None and all(one.in_force for uid, one in self._states.items() if uid in given)

    def stays(self, uid: str) -> bool:
        """Return whether a pod with changed rates exists and is not being deleted, so that it should get Events."""
        return self._given is not None and uid in self._given and uid not in self._leaving

    def set_states(self, states: Mapping[str, RatesState] | None) -> None:
        """Set the CNI server's reports, None without any; retry hand-overs that failed."""
        self._states = states
        if self._refused:
            self._hand_over()
        self._publish()

    def _take(self, event: Event[_Pod]) -> None:
        """Handle a watch event; a pod that cannot be read keeps its previous rates."""
        before = {} if self._given is None else self._given
        if isinstance(event, Synced):
            kept = {identity.uid: before[identity.uid] for identity in event.there if identity.uid in before}
            self._given, self._leaving = kept, self._leaving & kept.keys()
            for entry in event.entries:
                if isinstance(entry, Changed):
                    self._take_pod(entry, kept)
        elif isinstance(event, Changed):
            self._take_pod(event, before)
        elif isinstance(event, Removed):
            before.pop(event.identity.uid, None)
            self._leaving.discard(event.identity.uid)

    def _take_pod(self, event: Changed[_Pod], given: dict[str, HandedOverRates]) -> None:
        annotations, uid = event.item.metadata.annotations or {}, event.identity.uid
        rates = annotations.get(names.RATES)
        # If the annotation is removed, the last rates stay, as in the scheduler.
        if rates is not None and names.is_uid(uid):
            given[uid] = HandedOverRates(rates, annotations.get(names.RATES_SIGNATURE))
        if uid in given and event.item.metadata.deletion_timestamp is not None:
            self._leaving.add(uid)

    def _hand_over(self) -> None:
        """Write the files of existing pods and remove others; log a failure once, and retry."""
        if self._given is None:
            return
        wanted = {f"{uid}.json": dump_handed_over(given) for uid, given in self._given.items()}
        refusals = [record(self._folder / name, text) for name, text in wanted.items()]
        refusals += [record(self._folder / name, None) for name in _handed_over(self._folder) if name not in wanted]
        if not any(refusals):
            # Written after the files: once it exists, a missing file means that the pod no longer exists.
            refusals.append(record(self._listed, ""))
        refused = next((str(refusal) for refusal in refusals if refusal is not None), "")
        if refused and refused != self._refused:
            _log.error("rates cannot be handed over to the CNI server", reason=refused)
        self._refused = refused

    def _publish(self) -> None:
        if self._given is None or self._states is None:
            return
        in_force = {
            uid: state.generation for uid, state in self._states.items() if state.in_force and uid in self._given
        }
        self._publisher.set_desired(dump_rates_in_force(RatesInForce(in_force)))


def _has_said_so(inventory: str | None) -> bool:
    try:
        return inventory is not None and read_inventory(inventory).rates
    except AnnotationError:
        return False


def _handed_over(folder: Path) -> tuple[str, ...]:
    return record_names(folder, rates_record.IS_NAME)


def take_back(run: Path) -> None:
    """Remove the files of an earlier advertiser that handed rates over; this one does not."""
    # Remove LISTED first: without it a missing file means nothing.
    for path in (run / LISTED, *(run / HANDED_OVER / name for name in _handed_over(run / HANDED_OVER))):
        if (refused := record(path, None)) is not None:
            _log.warning("rates cannot be withdrawn from the CNI server", path=str(path), reason=str(refused))
