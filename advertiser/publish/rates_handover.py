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
from mooring.records.rates_exchange import HANDED_OVER, RATES_LIST, HandedOverRates, RatesState, dump_handed_over

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
        self._folder, self._list_mark = run / HANDED_OVER, run / RATES_LIST
        self._publisher = publisher
        self._notify = notify
        self._claims_rates: bool | None = None
        self._rates: dict[str, HandedOverRates] | None = None
        self._uids_in_deletion: set[str] = set()
        self._states: Mapping[str, RatesState] | None = None
        self._refusal = ""

    async def run(self) -> None:
        """Watch the pods; never return."""
        parameters = {"fieldSelector": f"spec.nodeName={self._node}"}
        async for event in watch(self._client, "/api/v1/pods", _decode_pod, parameters):
            self._take(event)
            self._hand_over()
            self._publish()
            if self._claims_rates is False or isinstance(event, Synced):
                self._notify()

    def claims_rates(self, inventory: str | None, *, is_served: bool) -> bool:
        """Return whether the inventory should say that the node changes rates.

        ``inventory`` is the published one. ``is_served`` is False if the CNI server is of a version that changes none.
        """
        if self._claims_rates is None:
            self._claims_rates = _last_claim(inventory)
        self._claims_rates = is_served and (
            self._claims_rates or (self._is_all_in_force() and self._publisher.is_published)
        )
        return self._claims_rates

    def _is_all_in_force(self) -> bool:
        if self._states is None:
            return False
        return all(state.in_force for uid, state in self._states.items() if uid in (self._rates or {}))

    def stays(self, uid: str) -> bool:
        """Return whether a pod with changed rates exists and is not being deleted, so that it should get Events."""
        return self._rates is not None and uid in self._rates and uid not in self._uids_in_deletion

    def set_states(self, states: Mapping[str, RatesState] | None) -> None:
        """Set the CNI server's reports, None without any; retry hand-overs that failed."""
        self._states = states
        if self._refusal:
            self._hand_over()
        self._publish()

    def _take(self, event: Event[_Pod]) -> None:
        """Handle a watch event; a pod that cannot be read keeps its previous rates."""
        rates = {} if self._rates is None else self._rates
        if isinstance(event, Synced):
            remainder = {identity.uid: rates[identity.uid] for identity in event.identities if identity.uid in rates}
            self._rates, self._uids_in_deletion = remainder, self._uids_in_deletion & remainder.keys()
            for entry in event.entries:
                if isinstance(entry, Changed):
                    self._take_pod(entry, remainder)
        elif isinstance(event, Changed):
            self._take_pod(event, rates)
        elif isinstance(event, Removed):
            rates.pop(event.identity.uid, None)
            self._uids_in_deletion.discard(event.identity.uid)

    def _take_pod(self, event: Changed[_Pod], rates_of_pods: dict[str, HandedOverRates]) -> None:
        annotations, uid = event.item.metadata.annotations or {}, event.identity.uid
        rates = annotations.get(names.RATES)
        # If the annotation is removed, the last rates stay, as in the scheduler.
        if rates is not None and names.is_uid(uid):
            rates_of_pods[uid] = HandedOverRates(rates, annotations.get(names.RATES_SIGNATURE))
        if uid in rates_of_pods and event.item.metadata.deletion_timestamp is not None:
            self._uids_in_deletion.add(uid)

    def _hand_over(self) -> None:
        """Write the files of existing pods and remove others; log a failure once, and retry."""
        if self._rates is None:
            return
        texts = {f"{uid}.json": dump_handed_over(rates) for uid, rates in self._rates.items()}
        refusals = [record(self._folder / name, text) for name, text in texts.items()]
        refusals += [record(self._folder / name, None) for name in _file_names(self._folder) if name not in texts]
        if not any(refusals):
            # Written after the files: once it exists, a missing file means that the pod no longer exists.
            refusals.append(record(self._list_mark, ""))
        refusal = next((str(error) for error in refusals if error is not None), "")
        if refusal and refusal != self._refusal:
            _log.error("rates cannot be handed over to the CNI server", reason=refusal)
        self._refusal = refusal

    def _publish(self) -> None:
        if self._rates is None or self._states is None:
            return
        in_force = {
            uid: state.generation for uid, state in self._states.items() if state.in_force and uid in self._rates
        }
        self._publisher.set_desired_state(dump_rates_in_force(RatesInForce(in_force)))


def _last_claim(inventory: str | None) -> bool:
    try:
        return inventory is not None and read_inventory(inventory).rates
    except AnnotationError:
        return False


def _file_names(folder: Path) -> tuple[str, ...]:
    return record_names(folder, rates_record.IS_NAME)


def withdraw_rates(run: Path) -> None:
    """Remove the files of an earlier advertiser that handed rates over; this one does not."""
    # Remove RATES_LIST first: without it a missing file means nothing.
    for path in (run / RATES_LIST, *(run / HANDED_OVER / name for name in _file_names(run / HANDED_OVER))):
        if (error := record(path, None)) is not None:
            _log.warning("rates cannot be withdrawn from the CNI server", path=str(path), reason=str(error))
