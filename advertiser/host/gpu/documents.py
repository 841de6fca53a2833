"""Read the operator's GPU file, YAML or JSON; log when it becomes invalid."""

from pathlib import Path

import structlog

from advertiser.inventory.gpu.gpus_file import GpuEntry, GpusFileError, read_gpus_file
from mooring.bounded_yaml import YamlError, to_json
from mooring.files import read_file

_log = structlog.get_logger()


class GpusFile:
    """The operator's GPU file, read again at every call; while it is invalid, the last valid content is used."""

    def __init__(self, path: Path, *, required: bool) -> None:
        """Read the file; raise GpusFileError or OSError if it cannot be used, FileNotFoundError only if required."""
        self._path = path
        self._required = required
        self._entries = self._read()

    def entries(self) -> tuple[GpuEntry, ...]:
        """Return the current entries."""
        try:
            self._entries = self._read()
        except (GpusFileError, OSError) as error:
            _log.error("GPU file cannot be read, using the last valid one", path=str(self._path), reason=str(error))
        return self._entries

    def _read(self) -> tuple[GpuEntry, ...]:
        text = read_file(self._path)
        if text is None:
            if self._required:
                raise FileNotFoundError(f"GPU file {str(self._path)!r} does not exist")
            return ()
        try:
            document = to_json(text)
        except YamlError as error:
            raise GpusFileError(str(self._path), "", f"not valid YAML: {error}") from error
        return read_gpus_file(document, str(self._path))
