"""Read the IPAM configurations in this node's own files, and check the configuration of a call against them.

The files are read at each call that needs them, so that changes take effect at once. Files that users other than root
may write are ignored.
"""

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from cni.spec.conf import Conf
from cni.spec.own_ipam import OwnIpam, entries_of, ipams_of
from cni.spec.skel import CniError
from mooring.files import read_own_file

_log = structlog.get_logger()
_ENDINGS = (".conf", ".conflist", ".json")
_MOST_BYTES = 1 << 20


def check(conf: Conf) -> None:
    """Raise CniError 7 if a call has an IPAM configuration that is not one of this node's own."""
    ipams = conf.every_ipam()
    if not ipams or conf.ipam_files is None:
        return
    own_ipam = _read(conf.ipam_files)
    for name, ipam in ipams.items():
        own_ipam.check_ipam(ipam, name, conf.name)


def types(files: Sequence[str]) -> list[str]:
    """Return the sorted names of the IPAM plugins in files and folders of network configurations."""
    return sorted({str(ipam["type"]) for ipam in _read(files).ipams})


def without_foreign_ipam(conf: Conf) -> Conf:
    """Return the configuration without the IPAM configurations that `check` refuses."""
    if not conf.every_ipam() or conf.ipam_files is None:
        return conf
    own_ipam = _read(conf.ipam_files)
    networks = {
        name: replace(network, ipam=_drop_foreign(own_ipam, network.ipam, conf))
        for name, network in conf.networks.items()
    }
    return replace(conf, ipam=_drop_foreign(own_ipam, conf.ipam, conf), networks=networks)


def _drop_foreign(own_ipam: OwnIpam, ipam: Mapping[str, Any] | None, conf: Conf) -> Mapping[str, Any] | None:
    if ipam is None:
        return None
    try:
        own_ipam.check_ipam(ipam, "ipam", conf.name)
    except CniError as error:
        _log.warning("ipam plugin is skipped", reason=str(error))
        return None
    return ipam


def _read(files: Sequence[str]) -> OwnIpam:
    """Read files of mooring-cni's own fields, and folders of network configurations."""
    ipams: list[Mapping[str, Any]] = []
    networks: set[str] = set()
    for path in map(Path, files):
        if not path.is_dir():
            ipams += ipams_of(_document(path, read_own_file))
            continue
        for document in (_document(configuration, _read_chain) for configuration in _configurations(path)):
            ipams += (ipam for entry in entries_of(document) for ipam in ipams_of(entry))
            if isinstance(document, dict) and isinstance(name := document.get("name"), str):
                networks.add(name)
    return OwnIpam(ipams, frozenset(networks))


def _configurations(folder: Path) -> Iterator[Path]:
    yield from (path for path in sorted(folder.iterdir()) if path.name.endswith(_ENDINGS))


def _read_chain(path: Path) -> str | None:
    """Return the text of a file that root owns; the owner of its folder does not matter.

    Runtimes trust the whole folder, and kubespray gives it to a user of its own
    (roles/kubernetes/preinstall/tasks/0050-create_directories.yml).
    """
    status = path.stat()
    is_own = status.st_uid in (0, os.geteuid()) and not status.st_mode & stat.S_IWOTH
    return path.read_text(encoding="utf-8", errors="replace") if is_own else None


def _document(path: Path, read: Callable[[Path], str | None]) -> object:
    """Return the JSON of a file; None if it is not a regular file, is too large, or others may write to it."""
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return None
        return json.loads(read(path) or "null")
    except (OSError, ValueError, RecursionError):
        return None
