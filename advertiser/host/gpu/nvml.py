"""NVML through nvidia-ml-py, where both are: NVLink, memory, MIG mode and Xid errors.

The package (module ``pynvml``) is no requirement: without it, without NVIDIA's library or without its driver there is
simply nothing to read. NVML tells Xid errors as events only, so this program knows those since it began to listen.

Source: NVIDIA's NVML API reference, device queries, NVLink methods and event handling; nvidia-ml-py's ``pynvml.py``.
"""

import importlib
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any, TypeVar

import structlog

from advertiser.inventory.gpu.facts import NvmlGpu

Answer = TypeVar("Answer")
_log = structlog.get_logger()
# nvmlIntNvLinkDeviceType_t: GPU, an IBM NPU, NVSwitch.
_GPU, _SWITCH = 0, 2
# The library has no limit of time of its own, and a GPU that is failing can keep it for minutes, in seconds. What is
# known of VFs must not wait for it.
_LONGEST_S = 10.0
# Of more events at once the rest is read at the next scan.
_MOST_EVENTS = 1024


class Nvml:
    """The library, opened at the first reading and held: the events since the last one are kept for us.

    It is asked in a thread of its own; one that does not return in time is waited for at the next reading.
    """

    def __init__(
        self, load: Callable[[], Any] = lambda: importlib.import_module("pynvml"), longest_s: float = _LONGEST_S
    ) -> None:
        self._load = load
        self._longest_s = longest_s
        self._asking: Thread | None = None
        self._answer: dict[str, NvmlGpu] | None = None
        self._late = False
        self._library: Any = None
        self._events: Any = None
        self._xids: dict[str, set[int]] = {}

    def read(self) -> dict[str, NvmlGpu] | None:
        """Return what NVML says, by PCI address, or what it said last while it does not answer.

        None where it cannot be asked, and before its first answer.
        """
        asking = self._asking
        if asking is None or not asking.is_alive():
            asking = self._asking = Thread(target=self._take_answer, daemon=True, name="nvml")
            asking.start()
        asking.join(self._longest_s)
        late = asking.is_alive()
        if late and not self._late:
            _log.error("NVML keeps this program waiting, its last answer stands", seconds=self._longest_s)
        self._late = late
        return self._answer

    def _take_answer(self) -> None:
        self._answer = self._read()

    def _read(self) -> dict[str, NvmlGpu] | None:
        if self._library is None and not self._open():
            return None
        try:
            count = self._library.nvmlDeviceGetCount()
        except self._library.NVMLError as failed:
            _log.error("NVML does not answer any more", reason=str(failed))
            self._library = self._events = None
            return None
        handles = [handle for index in range(count) if (handle := self._ask("HandleByIndex", index)) is not None]
        self._take_events()
        return {address: self._gpu(address, handle) for handle in handles if (address := self._address(handle))}

    def _open(self) -> bool:
        try:
            library = self._load()
        except ImportError:
            return False
        try:
            library.nvmlInit()
        except library.NVMLError:
            # No library or no driver of NVIDIA's: a host without their GPUs, or one where the driver is not loaded yet.
            return False
        self._library = library
        self._listen()
        return True

    def _listen(self) -> None:
        """Ask for Xid errors of each GPU that can tell them."""
        library = self._library
        try:
            self._events = library.nvmlEventSetCreate()
        except library.NVMLError:
            self._events = None
            return
        for index in range(self._ask("Count") or 0):
            handle = self._ask("HandleByIndex", index)
            try:
                library.nvmlDeviceRegisterEvents(handle, library.nvmlEventTypeXidCriticalError, self._events)
            except library.NVMLError as refused:
                _log.warning("a GPU does not tell its Xid errors", index=index, reason=str(refused))

    def _take_events(self) -> None:
        library = self._library
        for _ in range(_MOST_EVENTS if self._events is not None else 0):
            try:
                event = library.nvmlEventSetWait_v2(self._events, 0)
            except library.NVMLError:
                # A timeout: there are no more.
                return
            if (address := self._address(event.device)) is not None:
                self._xids.setdefault(address, set()).add(int(event.eventData))

    def _gpu(self, address: str, handle: Any) -> NvmlGpu:
        memory, mig = self._ask("MemoryInfo", handle), self._ask("MigMode", handle)
        ends = list(self._link_ends(handle))
        return NvmlGpu(
            uuid=_text(self._ask("UUID", handle)),
            model=_text(self._ask("Name", handle)),
            memory_bytes=None if memory is None else int(memory.total),
            # The mode now, and the one after a reset: one that is to be on will cut the GPU under its pod.
            mig=mig is not None and any(mode == 1 for mode in mig),
            nvlinks=frozenset(peer for kind, peer in ends if kind == _GPU and peer is not None),
            switched=any(kind == _SWITCH for kind, _ in ends),
            xids=frozenset(self._xids.get(address, ())),
        )

    def _link_ends(self, handle: Any) -> Iterator[tuple[int, str | None]]:
        """Yield what is at the other end of each active NVLink: its type and its PCI address."""
        for link in range(self._library.NVML_NVLINK_MAX_LINKS):
            if self._ask("NvLinkState", handle, link) != 1:
                continue
            kind, remote = (
                self._ask("NvLinkRemoteDeviceType", handle, link),
                self._ask("NvLinkRemotePciInfo", handle, link),
            )
            # A virtual machine sees no NVSwitch, and its links lead to no address.
            yield _GPU if kind is None else int(kind), None if remote is None else _address(remote.busId)

    def _address(self, handle: Any) -> str | None:
        found = self._ask("PciInfo", handle)
        return None if found is None else _address(found.busId)

    def _ask(self, what: str, *arguments: Any) -> Any:
        """Return the answer of ``nvmlDeviceGet<what>``; None where the GPU or the library does not know it."""
        query = getattr(self._library, f"nvmlDeviceGet{what}", None)
        if query is None:
            return None
        try:
            return query(*arguments)
        except self._library.NVMLError:
            return None


def _text(answer: Any) -> str | None:
    """Return a string; older versions of nvidia-ml-py give bytes."""
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else answer
    return text or None


def _address(bus_id: Any) -> str | None:
    """Return sysfs' form of NVML's bus id: ``00000000:1B:00.0`` has eight digits of domain and capital letters."""
    text = (_text(bus_id) or "").lower()
    domain, colon, rest = text.partition(":")
    return f"{domain[-8:].lstrip('0').rjust(4, '0')}{colon}{rest}" if colon else None
