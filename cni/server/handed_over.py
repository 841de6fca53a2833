"""Read the rates that the advertiser hands over: files of a program without root, so that nothing of them is believed.

A file is read once it is new or replaced, and only for a pod that the CRI shim has recorded. One that is settled is not
read again, or not before a time: what was not believed may be later, as once the keys are there.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from mooring import names
from mooring.annotations.rates import MOST_PODS
from mooring.errors import RecordError
from mooring.files import Stamp, open_foreign_folder, read_foreign_file, stamps
from mooring.records.rates_exchange import HANDED_OVER, LISTED, MOST_BYTES, HandedOverRates, read_handed_over

_log = structlog.get_logger()
_FOR_EVER = float("inf")


class HandedOver:
    """The advertiser's files as the last look has found them; ``uids`` are the pods that they name.

    ``is_whole``: a pod that exists, and whose rates were ever changed, has one.
    """

    def __init__(self) -> None:
        self._found: Mapping[str, Stamp] = {}
        self.is_whole = False
        self._settled: dict[str, tuple[Stamp, float]] = {}

    @property
    def uids(self) -> frozenset[str]:
        return frozenset(map(_uid, self._found))

    def read(self, run: Path, is_recorded: Callable[[str], bool], now: float) -> dict[str, HandedOverRates]:
        """Return by uid what is not settled at ``now`` (monotonic seconds); raise OSError for what is no folder."""
        given: dict[str, HandedOverRates] = {}
        # Before the files, which were written before it.
        self.is_whole = (run / LISTED).is_file()
        with open_foreign_folder(run / HANDED_OVER) as folder:
            self._found = {} if folder is None else stamps(folder, MOST_PODS)
            self.is_whole = self.is_whole and len(self._found) < MOST_PODS
            self._settled = {name: one for name, one in self._settled.items() if self._found.get(name) == one[0]}
            for name in self._found:
                uid = _uid(name)
                if now < self._settled.get(name, ((), 0.0))[1] or not names.is_uid(uid) or not is_recorded(uid):
                    continue
                if (one := self._read(name, folder)) is not None:
                    given[uid] = one
        return given

    def settle(self, uid: str, until: float = _FOR_EVER) -> None:
        """Read a pod's file no more before ``until``, unless it is replaced."""
        name = f"{uid}.json"
        if name in self._found:
            self._settled[name] = (self._found[name], until)

    def _read(self, name: str, folder: int | None) -> HandedOverRates | None:
        """Return a file's contents, None if it is gone; one that cannot be read is told, and settled."""
        try:
            text = read_foreign_file(Path(name), MOST_BYTES, folder)
            return None if text is None else read_handed_over(text, name)
        except (RecordError, OSError) as broken:
            _log.warning("rates from the advertiser cannot be read", uid=_uid(name), reason=str(broken))
            self.settle(_uid(name))
            return None


def _uid(name: str) -> str:
    return name.removesuffix(".json")
