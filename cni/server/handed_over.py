"""Read the rates that the advertiser passes in files; the advertiser runs without root, so the files are not trusted.

A file is read when it is new or replaced, and only for a pod that the CRI shim has recorded. A settled file is not read
again, or only after some time: rejected rates may be accepted later, for example when the keys exist.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from mooring import names
from mooring.annotations.rates import MOST_PODS
from mooring.errors import RecordError
from mooring.files import Stamp, open_foreign_folder, read_foreign_file, stamps
from mooring.records.rates_exchange import HANDED_OVER, MOST_BYTES, RATES_LIST, HandedOverRates, read_handed_over

_log = structlog.get_logger()
_NO_LIMIT = float("inf")


class HandedOver:
    """The advertiser's files at the last read; ``uids`` are their pods.

    ``is_whole``: every existing pod whose rates were ever changed has a file.
    """

    def __init__(self) -> None:
        self._stamps: Mapping[str, Stamp] = {}
        self.is_whole = False
        self._settlements: dict[str, tuple[Stamp, float]] = {}

    @property
    def uids(self) -> frozenset[str]:
        return frozenset(map(_uid, self._stamps))

    def read(self, run: Path, is_recorded: Callable[[str], bool], now: float) -> dict[str, HandedOverRates]:
        """Return the rates that are not settled, by uid; raise OSError if the path is not a folder.

        ``now`` is in monotonic seconds; ``is_recorded`` returns whether a pod has a record.
        """
        rates_by_uid: dict[str, HandedOverRates] = {}
        # Check this before the files: the advertiser writes it after them.
        self.is_whole = (run / RATES_LIST).is_file()
        with open_foreign_folder(run / HANDED_OVER) as folder:
            self._stamps = {} if folder is None else stamps(folder, MOST_PODS)
            self.is_whole = self.is_whole and len(self._stamps) < MOST_PODS
            self._settlements = {
                name: (stamp, until)
                for name, (stamp, until) in self._settlements.items()
                if self._stamps.get(name) == stamp
            }
            for name in self._stamps:
                uid = _uid(name)
                if now < self._settlements.get(name, ((), 0.0))[1] or not names.is_uid(uid) or not is_recorded(uid):
                    continue
                if (rates := self._read(name, folder)) is not None:
                    rates_by_uid[uid] = rates
        return rates_by_uid

    def settle(self, uid: str, until: float = _NO_LIMIT) -> None:
        """Do not read a pod's file again before ``until`` (monotonic seconds), unless it is replaced."""
        name = f"{uid}.json"
        if name in self._stamps:
            self._settlements[name] = (self._stamps[name], until)

    def _read(self, name: str, folder: int | None) -> HandedOverRates | None:
        """Return the contents of a file, None if it is gone; an unreadable file is logged and settled."""
        try:
            text = read_foreign_file(Path(name), MOST_BYTES, folder)
            return None if text is None else read_handed_over(text, name)
        except (RecordError, OSError) as error:
            _log.warning("rates from the advertiser cannot be read", uid=_uid(name), reason=str(error))
            self.settle(_uid(name))
            return None


def _uid(name: str) -> str:
    return name.removesuffix(".json")
