"""Read CDI specifications from disk, YAML or JSON; log those that cannot be read."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import structlog

from mooring.bounded_yaml import to_json
from mooring.files import NOT_UTF_8, read_file
from mooring.folders import entry_names
from mooring.gpu.cdi import CdiDevice, read_cdi
from mooring.parsing import MAX_BYTES

_log = structlog.get_logger()
DEFAULT_FOLDERS = "/etc/cdi:/var/run/cdi"
_MOST_FILES = 1024
_UNREAD = "CDI specification {!r} cannot be read: {}"


class CdiFolders:
    """The folders of a host's CDI specifications; a device in a later folder takes precedence.

    If two specifications of one folder have the same device, it is not used at all, as in container runtimes. Source:
    the CDI cache of cncf-tags/container-device-interface, ``Cache.refresh``.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = tuple(folders)
        self._warnings: set[str] = set()
        self._read: dict[Path, tuple[tuple[int, int, int], tuple[CdiDevice, ...]]] = {}

    def devices(self) -> tuple[CdiDevice, ...]:
        """Return the devices, by qualified name."""
        device_of_name: dict[str, CdiDevice] = {}
        ambiguous_names = set[str]()
        for folder in self._folders:
            in_folder: dict[str, CdiDevice] = {}
            for device in self._in_folder(folder):
                if device.qualified_name in in_folder:
                    ambiguous_names.add(device.qualified_name)
                    self._warn_once(f"{device.qualified_name} is in two CDI specifications of {str(folder)!r}")
                in_folder[device.qualified_name] = device
            device_of_name |= in_folder
        return tuple(device_of_name[name] for name in sorted(device_of_name.keys() - ambiguous_names))

    def _in_folder(self, folder: Path) -> Iterator[CdiDevice]:
        try:
            names = entry_names(folder, is_specification)
        except OSError as error:
            self._warn_once(f"folder of CDI specifications {str(folder)!r} cannot be read: {error}")
            return
        if len(names) > _MOST_FILES:
            self._warn_once(f"folder of CDI specifications {str(folder)!r} has more than {_MOST_FILES} of them")
        for name in names[:_MOST_FILES]:
            yield from self._of_file(folder / name)

    def _of_file(self, path: Path) -> tuple[CdiDevice, ...]:
        """Return a file's devices; parse the file only if it has changed."""
        try:
            status = path.stat()
            state = (status.st_ino, status.st_mtime_ns, status.st_size)
            cache_entry = self._read.get(path)
            if cache_entry is None or cache_entry[0] != state:
                cache_entry = self._read[path] = (state, self._parse_file(path))
        except OSError as error:
            self._warn_once(_UNREAD.format(str(path), error))
            return ()
        return cache_entry[1]

    def _parse_file(self, path: Path) -> tuple[CdiDevice, ...]:
        text = read_file(path, MAX_BYTES)
        try:
            if text is not None and NOT_UTF_8 in text:
                raise ValueError("not UTF-8")
            return () if text is None else read_cdi(to_json(text), str(path))
        except ValueError as error:
            self._warn_once(_UNREAD.format(str(path), error))
            return ()

    def _warn_once(self, reason: str) -> None:
        if reason not in self._warnings:
            self._warnings.add(reason)
            _log.warning("CDI device is not used", reason=reason)


def is_specification(name: str) -> bool:
    """Return whether a runtime reads a file with this name; it follows links and reads no subfolders (scanSpecDirs)."""
    return name.endswith((".yaml", ".json"))


def cdi_folders(paths: str) -> CdiFolders:
    """Return the folders that a flag names, separated by colons."""
    return CdiFolders(map(Path, filter(None, paths.split(":"))))
