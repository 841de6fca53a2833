"""STATUS: report what keeps this node from serving an ADD."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cni.spec.conf import Conf
from cni.spec.skel import LIMITED, UNAVAILABLE, Call, CniError
from cni.vf import ipam, own_ipam
from cni.vf.node import NOT_PREPARED, Node, is_prepared
from cni.vf.observe import differences_of, observe
from mooring.errors import RecordError
from mooring.files import read_file
from mooring.records.ledger import LedgerEntry
from mooring.records.run_folder import VERSIONS

_BLOCK = 4096


def run(node: Node, call: Call, conf: Conf, version: str) -> None:
    """Raise CniError 50 that lists all that is missing; ``version`` is the version of this program.

    The code is 51 if a pod's VFs also differ from the state that ADD left.
    """
    missing = [*_folders(node), *_versions(node, call, version), *_offer(node)]
    if conf.await_init and not is_prepared(node):
        missing.append(NOT_PREPARED)
    if missing:
        limited = [text for entry in _held(node) for text in differences_of(entry, observe(node, entry))]
        what = "; ".join((*missing, *limited))
        raise CniError(LIMITED if limited else UNAVAILABLE, "mooring-cni is not available", what)
    for config in own_ipam.own_only(conf).every_ipam().values():
        ipam.delegate("STATUS", conf.delegated(config) | {"cniVersion": conf.version}, call.path)


def _held(node: Node) -> list[LedgerEntry]:
    return [entry for entry in node.ledger.entries() if entry.phase == "held" and entry.boot == node.boot]


def _folders(node: Node) -> Iterator[str]:
    for name, folder in (("state", node.ledger.state), ("run", node.run)):
        try:
            _try_to_write(folder)
        except OSError as refused:
            yield f"{name} folder {str(folder)!r} is not writable: {refused.strerror}"


def _try_to_write(folder: Path) -> None:
    """Write an unnamed block in the folder, or in the parent where it would be made; a full disk fails it too."""
    nearest = next(path for path in (folder, *folder.parents) if path.is_dir())
    with tempfile.TemporaryFile(dir=nearest, buffering=0) as probe:
        probe.write(bytes(_BLOCK))
        os.fsync(probe.fileno())


def _offer(node: Node) -> Iterator[str]:
    try:
        node.ledger.pf_offer("")
    except (RecordError, OSError) as unreadable:
        yield f"the node's offer cannot be used: {unreadable}"


def _versions(node: Node, call: Call, version: str) -> Iterator[str]:
    """Compare this program's version with those of the executable that was called and of the server."""
    serving = read_file(node.run / VERSIONS / "mooring-cni")
    if call.forwarder and call.forwarder != version:
        yield f"the executable is of version {call.forwarder[:40]!r}, its server of {version!r}"
    elif serving is not None and serving.strip() != version:
        yield f"the server is of version {serving.strip()[:40]!r}, this program of {version!r}"
