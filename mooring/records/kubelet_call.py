"""When the kubelet last called the CRI shim, ``<run>/kubelet-call.json``: written by the shim, root only.

    {"v":1,"at_ms":8042310}
    {"v":1,"at_ms":8042310,"waiting":true}

``at_ms`` is the host's monotonic clock (CLOCK_MONOTONIC), which all programs of one boot share and nobody sets. A call
counts if it is the kubelet's poll of the runtime's Status, every 5 s (updateRuntimeUp in pkg/kubelet/kubelet.go of
Kubernetes). ``waiting`` stands for the time before the first call of a boot: ``at_ms`` is when a shim began to wait for
one. `mooring-node` waits for a call after it has restarted the kubelet, and judges by it whether the kubelet speaks to
the shim. A field that a reader does not know is ignored.
"""

from dataclasses import dataclass

from mooring.errors import RecordError
from mooring.parsing import dump, parse

NAME = "kubelet-call.json"
STATUS = "/runtime.v1.RuntimeService/Status"


@dataclass(frozen=True, slots=True)
class LastCall:
    """The last call, in monotonic seconds, or since when a shim is ``waiting`` for the first one."""

    at_s: float
    waiting: bool = False


def read_kubelet_call(text: str) -> LastCall:
    """Read the record; raise RecordError."""
    document = parse(text, NAME, RecordError).version(1).fields()
    at_ms = document.required("at_ms").integer(0, 1 << 50)
    return LastCall(at_ms / 1000, document.optional("waiting", lambda value: value.boolean()) or False)


def dump_kubelet_call(call: LastCall) -> str:
    return dump({"v": 1, "at_ms": int(call.at_s * 1000)} | ({"waiting": True} if call.waiting else {}))
