"""Hand the changed rates of this node's pods to the CNI server, and publish which of them are in force.

The pods are followed by the API server's watch, those of this node alone; what is kept of one are its two annotations.
Each has a file in the run folder (`mooring.records.rates_exchange`) as long as the pod exists: the server decides what
it takes of it. What the server then says is in force is published by generation, for pods that exist. Nothing is
published before the pods were listed, nor while the server has said nothing since the boot: what the node carries then
stands.

That the node changes rates its inventory says, which every advertiser writes: one of an earlier version without it. So
what it leaves in force counts no more, and here it counts once it is true again. Where a VF has been given the
assignment's rates meanwhile, no generation says that they are reserved; the scheduler reserves them until the inventory
says so. So it does once everything that the server has recorded is in force, and that is published. An advertiser that
starts goes on with what the inventory says.
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
    """The changed rates of one node's pods: from the API server to the CNI server, and back to the node's object."""

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
        """Follow the pods; never return."""
        selected = {"fieldSelector": f"spec.nodeName={self._node}"}
        async for event in watch(self._client, "/api/v1/pods", _decode_pod, selected):
            self._take(event)
            self._hand_over()
            self._publish()
            if self._says_so is False or isinstance(event, Synced):
                self._notify()

    def says_so(self, inventory: str | None, *, is_served: bool) -> bool:
        """Return whether the node is to say that it changes rates; ``inventory`` is what it has published last.

        ``is_served`` is false where the CNI server is one that changes none.
        """
        if self._says_so is None:
            self._says_so = _has_said_so(inventory)
        self._says_so = is_served and (self._says_so or (self._is_all_in_force() and self._publisher.published))
        return self._says_so

    def _is_all_in_force(self) -> bool:
        given = {} if self._given is None else self._given
        return self._states is not None and all(one.in_force for uid, one in self._states.items() if uid in given)

    def stays(self, uid: str) -> bool:
        """Return whether a pod with changed rates is known, and does not leave: its owner wants to know about them."""
        return self._given is not None and uid in self._given and uid not in self._leaving

    def set_states(self, states: Mapping[str, RatesState] | None) -> None:
        """Take what the CNI server says, None where it has said nothing; hand over what could not be before."""
        self._states = states
        if self._refused:
            self._hand_over()
        self._publish()

    def _take(self, event: Event[_Pod]) -> None:
        """Take a change; a pod that cannot be read keeps what it had."""
        before = {} if self._given is None else self._given
        if isinstance(event, Synced):
            kept = {one.uid: before[one.uid] for one in event.there if one.uid in before}
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
        # Rates that are removed stay what they were, as for the scheduler.
        if rates is not None and names.is_uid(uid):
            given[uid] = HandedOverRates(rates, annotations.get(names.RATES_SIGNATURE))
        if uid in given and event.item.metadata.deletion_timestamp is not None:
            self._leaving.add(uid)

    def _hand_over(self) -> None:
        """Make the files those of the pods that exist; what refuses that is told once, and tried again."""
        if self._given is None:
            return
        wanted = {f"{uid}.json": dump_handed_over(given) for uid, given in self._given.items()}
        refusals = [record(self._folder / name, text) for name, text in wanted.items()]
        refusals += [record(self._folder / name, None) for name in _handed_over(self._folder) if name not in wanted]
        if not any(refusals):
            # Not before the files: without one a pod that it may belong to is gone.
            refusals.append(record(self._listed, ""))
        refused = next((str(one) for one in refusals if one is not None), "")
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
    """Remove what an advertiser has handed over that did so: this one does not."""
    # First: without it no file's absence says anything.
    for path in (run / LISTED, *(run / HANDED_OVER / name for name in _handed_over(run / HANDED_OVER))):
        if (refused := record(path, None)) is not None:
            _log.warning("rates cannot be withdrawn from the CNI server", path=str(path), reason=str(refused))
