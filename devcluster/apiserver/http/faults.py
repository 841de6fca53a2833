"""Make the server fail on purpose: a test plans which of the next requests fail and how."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

FaultKind = Literal["answer", "page", "drop_before", "drop_after", "delay", "hold", "body"]


@dataclass(slots=True)
class Fault:
    """What happens to the next `times` requests whose method and path match.

    `answer`: an error of `code`, nothing done, after `delay_s`. `page`: likewise, as a page in HTML, as of a proxy.
    `drop_before`: the connection breaks, nothing done. `drop_after`: it breaks when the write is done. `delay`: the
    answer comes `delay_s` later. `hold`: the server first awaits `until`. `body`: an answer of `code` with `body`,
    nothing done.
    """

    method: str
    path: str  # A regular expression, searched in the path with its query.
    kind: FaultKind
    times: int = 1
    code: int = 500
    delay_s: float = 0.0
    until: Callable[[], Awaitable[object]] | None = None
    reason: str = ""
    message: str = "a fault planned by a test"
    body: bytes = b""

    def matches(self, method: str, path: str) -> bool:
        """Return whether a request matches."""
        return self.times > 0 and self.method == method and re.search(self.path, path) is not None


@dataclass(slots=True)
class Faults:
    """The faults still to come, in order; empty in normal operation."""

    planned: list[Fault] = field(default_factory=list)

    def plan(self, fault: Fault) -> None:
        """Apply the fault to the next requests that match."""
        self.planned.append(fault)

    def take(self, method: str, path: str) -> Fault | None:
        """Return the fault of this request, counted down; None without one."""
        found = next((fault for fault in self.planned if fault.matches(method, path)), None)
        if found is not None:
            found.times -= 1
            self.planned = [fault for fault in self.planned if fault.times > 0]
        return found


def webhook_fails(
    method: str, path: str, reason: str = "context deadline exceeded", times: int = 1, delay_s: float = 0.0
) -> Fault:
    """Return what a write meets whose webhook (`failurePolicy: Fail`) cannot be called.

    Source: apiserver's pkg/admission/plugin/webhook/validating/dispatcher.go, Dispatch.
    """
    url = "https://hook.example.svc:443/?timeout=10s"
    message = f'failed calling webhook "hook.example.com": failed to call webhook: Post "{url}": {reason}'
    text = f"Internal error occurred: {message}"
    return Fault(method, path, "answer", times, 500, delay_s, reason="InternalError", message=text)
