"""When the kubelet last called the CRI shim, ``<run>/kubelet-call.json``: written by the shim, root only.

    {"v":1,"at_ms":8042310}

``at_ms`` is the host's monotonic clock (CLOCK_MONOTONIC), which all programs of one boot share and nobody sets. A call
counts if it is the kubelet's poll of the runtime's Status, every 5 s (updateRuntimeUp in pkg/kubelet/kubelet.go of
Kubernetes). Before the first call of a boot it is the time at which a shim began to wait for one. `mooring-node` waits
for a call after it has restarted the kubelet, and judges by it whether the kubelet speaks to the shim. A field that a
reader does not know is ignored.
"""

from mooring.errors import RecordError
from mooring.parsing import dump, parse

NAME = "kubelet-call.json"
STATUS = "/runtime.v1.RuntimeService/Status"


def read_kubelet_call(text: str) -> float:
    """Return the time of the last call in monotonic seconds; raise RecordError."""
    return parse(text, NAME, RecordError).version(1).fields().required("at_ms").integer(0, 1 << 50) / 1000


def dump_kubelet_call(at_s: float) -> str:
    return dump({"v": 1, "at_ms": int(at_s * 1000)})
