"""Read NVLinks, memory, MIG mode, fabric state and Xid errors from NVML through nvidia-ml-py.

The package (module ``pynvml``) is optional: without it, NVIDIA's library or the driver there is nothing to read. NVML
reports Xid errors only as events, so errors from before this program listened are not seen.

Source: NVIDIA's NVML API reference, device queries, NVLink methods and event handling; nvidia-ml-py's ``pynvml.py``.
"""

import ctypes
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
# nvmlGpuFabricState_t; the status counts once the state is completed (nvmlGpuFabricInfo_t in nvml.h).
_FABRIC_PENDING = {1: "not started", 2: "in progress"}
_FABRIC_COMPLETED, _SUCCESS = 3, 0
# Seconds to wait for the library, which has no timeout: a failing GPU can block it for minutes, and the inventory of
# VFs must not wait for that.
_LONGEST_S = 10.0
# At most so many events are read in one scan; the next scan reads the rest.
_MOST_EVENTS = 1024


class Nvml:
    """The library. It is opened at the first `read` and stays open, so that it collects events between reads.

    Calls run in a separate thread. If a call does not return in time, the next `read` waits for it again.
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
        """Return NVML's answer by PCI address; its last answer while it does not respond in time.

        None if NVML is not available, and before its first answer.
        """
        asking = self._asking
        if asking is None or not asking.is_alive():
            asking = self._asking = Thread(target=self._take_answer, daemon=True, name="nvml")
            asking.start()
        asking.join(self._longest_s)
        late = asking.is_alive()
        if late and not self._late:
            _log.error("NVML does not answer in time, using its last answer", seconds=self._longest_s)
        self._late = late
        return self._answer

    def _take_answer(self) -> None:
        self._answer = self._read()

    def _read(self) -> dict[str, NvmlGpu] | None:
        if self._library is None and not self._open():
            return None
        try:
            count = self._library.nvmlDeviceGetCount()
        except self._library.NVMLError as error:
            _log.error("NVML no longer answers", reason=str(error))
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
            # NVIDIA's library or driver is missing: a host without its GPUs, or the driver is not loaded yet.
            return False
        self._library = library
        self._listen()
        return True

    def _listen(self) -> None:
        """Register for the Xid errors of each GPU that can report them."""
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
            except library.NVMLError as error:
                _log.warning("a GPU does not report its Xid errors", index=index, reason=str(error))

    def _take_events(self) -> None:
        library = self._library
        for _ in range(_MOST_EVENTS if self._events is not None else 0):
            try:
                event = library.nvmlEventSetWait_v2(self._events, 0)
            except library.NVMLError:
                # A timeout: there are no more events.
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
            # The current mode and the mode after a reset: a reset could partition the GPU while a pod has it.
            mig=mig is not None and any(mode == 1 for mode in mig),
            nvlinks=frozenset(peer for kind, peer in ends if kind == _GPU and peer is not None),
            switched=any(kind == _SWITCH for kind, _ in ends),
            xids=frozenset(self._xids.get(address, ())),
            fabric=self._fabric_fault(handle),
        )

    def _fabric_fault(self, handle: Any) -> str:
        """Return why a GPU's NVSwitch fabric is not set up, empty if it is or if nothing reports it.

        Until the fabric manager has registered the GPU, CUDA does not start on it (error 802, system not initialized).
        A GPU on no NVSwitch, and one older than Hopper, has no such state.
        """
        query = getattr(self._library, "nvmlDeviceGetGpuFabricInfo", None)
        if query is None:
            return ""
        found = self._library.c_nvmlGpuFabricInfo_t()
        try:
            query(handle, ctypes.byref(found))
        except self._library.NVMLError:
            return ""
        if found.state in _FABRIC_PENDING:
            return f"its NVSwitch fabric is not set up ({_FABRIC_PENDING[found.state]}): is the fabric manager running?"
        failed = found.state == _FABRIC_COMPLETED and found.status != _SUCCESS
        return (
            f"its NVSwitch fabric failed (NVML status {found.status}): see the fabric manager's log" if failed else ""
        )

    def _link_ends(self, handle: Any) -> Iterator[tuple[int, str | None]]:
        """Yield type and PCI address of the device at the other end of each active NVLink."""
        for link in range(self._library.NVML_NVLINK_MAX_LINKS):
            if self._ask("NvLinkState", handle, link) != 1:
                continue
            kind, remote = (
                self._ask("NvLinkRemoteDeviceType", handle, link),
                self._ask("NvLinkRemotePciInfo", handle, link),
            )
            # In a virtual machine NVSwitches are hidden, and links to them have no address.
            yield _GPU if kind is None else int(kind), None if remote is None else _address(remote.busId)

    def _address(self, handle: Any) -> str | None:
        found = self._ask("PciInfo", handle)
        return None if found is None else _address(found.busId)

    def _ask(self, what: str, *arguments: Any) -> Any:
        """Return the answer of ``nvmlDeviceGet<what>``; None if the GPU or the library does not support it."""
        query = getattr(self._library, f"nvmlDeviceGet{what}", None)
        if query is None:
            return None
        try:
            return query(*arguments)
        except self._library.NVMLError:
            return None


def _text(answer: Any) -> str | None:
    """Return the answer as a string; older versions of nvidia-ml-py return bytes."""
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else answer
    return text or None


def _address(bus_id: Any) -> str | None:
    """Return a bus id of NVML, such as ``00000000:1B:00.0``, in the form of sysfs, such as ``0000:1b:00.0``."""
    text = (_text(bus_id) or "").lower()
    domain, colon, rest = text.partition(":")
    return f"{domain[-8:].lstrip('0').rjust(4, '0')}{colon}{rest}" if colon else None
