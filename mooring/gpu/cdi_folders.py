"""Read CDI specifications from disk, as YAML or JSON; what cannot be read is logged."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import structlog
import yaml

from mooring.gpu.cdi import CdiDevice, read_cdi
from mooring.parsing import MAX_BYTES

_log = structlog.get_logger()
DEFAULT_FOLDERS = "/etc/cdi:/var/run/cdi"


class CdiFolders:
    """The folders of a host's CDI specifications; of two devices with one name that in the later folder counts.

    Two specifications of one folder that have the same device contradict each other, and then it counts nowhere:
    container runtimes drop it too. Source: the CDI cache of cncf-tags/container-device-interface, ``Cache.refresh``.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = tuple(folders)
        self._told: set[str] = set()
        self._read: dict[Path, tuple[tuple[int, int, int], tuple[CdiDevice, ...]]] = {}

    def devices(self) -> tuple[CdiDevice, ...]:
        """Return the devices, by qualified name."""
        found: dict[str, CdiDevice] = {}
        contradicted = set[str]()
        for folder in self._folders:
            in_folder: dict[str, CdiDevice] = {}
            for device in self._in_folder(folder):
                if device.qualified in in_folder:
                    contradicted.add(device.qualified)
                    self._tell(f"{device.qualified} is in two CDI specifications of {str(folder)!r}")
                in_folder[device.qualified] = device
            found |= in_folder
        return tuple(found[name] for name in sorted(found.keys() - contradicted))

    def _in_folder(self, folder: Path) -> Iterator[CdiDevice]:
        try:
            paths = sorted(folder.iterdir())
        except OSError:
            return
        for path in paths:
            if path.suffix in (".yaml", ".json"):
                yield from self._of_file(path)

    def _of_file(self, path: Path) -> tuple[CdiDevice, ...]:
        """Return a file's devices; one that is as at the last call is not parsed again."""
        try:
            status = path.stat()
            state = (status.st_ino, status.st_mtime_ns, status.st_size)
            known = self._read.get(path)
            if known is not None and known[0] == state:
                return known[1]
            if status.st_size > MAX_BYTES:
                raise ValueError(f"longer than {MAX_BYTES} bytes")
            devices = read_cdi(as_json(path.read_text(encoding="utf-8")), str(path))
        except (OSError, ValueError, yaml.YAMLError, RecursionError, TypeError) as broken:
            self._tell(f"CDI specification {str(path)!r} cannot be read: {broken}")
            return ()
        self._read[path] = (state, devices)
        return devices

    def _tell(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            _log.warning("CDI device is not used", reason=what)


def cdi_folders(paths: str) -> CdiFolders:
    """Return the folders that a flag names, separated by colons."""
    return CdiFolders(map(Path, filter(None, paths.split(":"))))


def as_json(text: str) -> str:
    """Return a YAML or JSON document as JSON; YAML's dates become text, which the rules then refuse."""
    try:
        json.loads(text)
    except ValueError:
        return json.dumps(yaml.safe_load(text), default=str)
    # As it stands: a field that stands twice is to be refused.
    return text
