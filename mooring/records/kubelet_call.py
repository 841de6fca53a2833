"""The time of the kubelet's last call of the CRI shim, ``<run>/kubelet-call.json``: written by the shim, for root only.

    {"v":1,"at_ms":8042310}
    {"v":1,"at_ms":8042310,"waiting":true}

``at_ms`` is the host's monotonic clock (CLOCK_MONOTONIC), which all programs of a boot share. Only the kubelet's poll
of the runtime's Status counts, which comes every 5 s (updateRuntimeUp in pkg/kubelet/kubelet.go of Kubernetes). With
``waiting`` there was no call yet in this boot, and ``at_ms`` is when the shim started to wait for one. `mooring-node`
waits for a call after it has restarted the kubelet, and determines from it whether the kubelet uses the shim. Readers
ignore unknown fields.
"""

from dataclasses import dataclass

from mooring.errors import RecordError
from mooring.parsing import dump, parse

NAME = "kubelet-call.json"
STATUS = "/runtime.v1.RuntimeService/Status"


@dataclass(frozen=True, slots=True)
class LastCall:
    """The time of the last call in monotonic seconds or, if ``waiting``, when the shim started to wait for one."""

    at_s: float
    waiting: bool = False


def read_kubelet_call(text: str) -> LastCall:
    """Read the record; raise RecordError."""
    document = parse(text, NAME, RecordError).version(1).fields()
    at_ms = document.required("at_ms").integer(0, 1 << 50)
    return LastCall(at_ms / 1000, document.optional("waiting", lambda value: value.boolean()) or False)


def dump_kubelet_call(call: LastCall) -> str:
    return dump({"v": 1, "at_ms": int(call.at_s * 1000)} | ({"waiting": True} if call.waiting else {}))
