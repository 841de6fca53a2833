"""Containers that lack devices of VFs or GPUs, ``<run>/extract/without-devices.json``: written by the CRI shim.

    {"v":1,"containers":[{"pod":"ml/web","uid":"8c2f…","container":"trainer","id":"5f0e…",
      "vfs":["0000:04:00.5"],"gpus":["0000:1b:00.0"],"stopped":true}]}

The advertiser writes Events from it, and `mooring-node check` reports it. The shim replaces the file when its findings
change. Readers ignore unknown fields, because the programs can be of different versions while a node is upgraded. The
file names at most 100 containers; the shim's metric counts all.
"""

from collections.abc import Collection
from dataclasses import dataclass

from mooring.errors import RecordError
from mooring.gpu.inventory import MOST_GPUS
from mooring.names import address, uid
from mooring.parsing import Value, dump, parse
from mooring.records.extract import FOLDER

NAME = f"{FOLDER}/without-devices.json"
_MOST_CONTAINERS = 100
_LONGEST_POD, _LONGEST_NAME, _MOST_VFS = 512, 256, 64


@dataclass(frozen=True, slots=True, order=True)
class WithoutDevices:
    """A running container that lacks devices of VFs or GPUs, given by PCI address; ``id`` is the runtime's.

    ``stopped``: the shim stops it, and the kubelet restarts it.
    """

    pod: str
    uid: str
    container: str
    id: str
    vfs: tuple[str, ...]
    stopped: bool = False
    gpus: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """Return a text with the VFs and GPUs whose devices it lacks."""
        kinds = (("VF", self.vfs), ("GPU", self.gpus))
        return "; ".join(f"{kind} {', '.join(addresses)}" for kind, addresses in kinds if addresses)


def read_without_devices(text: str) -> frozenset[WithoutDevices]:
    """Read the file's text; raise RecordError."""
    document = parse(text, NAME, RecordError).version(1).fields()
    return frozenset(map(_read, document.required("containers").items(_MOST_CONTAINERS)))


def dump_without_devices(containers: Collection[WithoutDevices]) -> str:
    return dump({"v": 1, "containers": [_fields(container) for container in sorted(containers)[:_MOST_CONTAINERS]]})


def _read(value: Value) -> WithoutDevices:
    document = value.fields()
    return WithoutDevices(
        pod=document.required("pod").string(_LONGEST_POD),
        uid=uid(document.required("uid")),
        container=document.required("container").string(_LONGEST_NAME),
        id=document.required("id").string(_LONGEST_NAME),
        vfs=tuple(address(vf) for vf in document.required("vfs").items(_MOST_VFS)),
        stopped=document.optional("stopped", Value.boolean) is True,
        gpus=document.optional("gpus", _gpus) or (),
    )


def _gpus(value: Value) -> tuple[str, ...]:
    return tuple(address(gpu) for gpu in value.items(MOST_GPUS))


def _fields(container: WithoutDevices) -> dict[str, object]:
    fields = {
        "pod": container.pod,
        "uid": container.uid,
        "container": container.container,
        "id": container.id,
        "vfs": list(container.vfs),
    }
    fields |= {"gpus": list(container.gpus)} if container.gpus else {}
    return fields | ({"stopped": True} if container.stopped else {})
