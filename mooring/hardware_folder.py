"""The folder with the stored results of hardware tests (`mooring.records.hardware_result`): write one, read all."""

from collections.abc import Mapping
from pathlib import Path

from mooring.errors import RecordError
from mooring.files import write_file, write_shared
from mooring.folders import read_folder
from mooring.records.hardware_result import (
    EXTRACT_FOLDER,
    FOLDER,
    IS_NAME,
    HardwareResult,
    dump_hardware_result,
    read_hardware_result,
)


def keep_result(state: Path, run: Path, result: HardwareResult) -> None:
    """Write a PF's result, and its extract where this boot has a folder for it; raise OSError."""
    name, text = f"{result.pf}.json", dump_hardware_result(result)
    write_file(state / FOLDER / name, text)
    if (run / EXTRACT_FOLDER).is_dir():
        write_shared(run / EXTRACT_FOLDER / name, text)


def read_results(folder: Path) -> Mapping[str, HardwareResult | RecordError | OSError]:
    """Return the results in a folder by the PF's address, or why one cannot be read."""
    results: dict[str, HardwareResult | RecordError | OSError] = {}
    for name, text in read_folder(folder, IS_NAME):
        results[name.removesuffix(".json")] = text if isinstance(text, OSError) else _read(text, f"{FOLDER}/{name}")
    return results


def _read(text: str, name: str) -> HardwareResult | RecordError:
    try:
        return read_hardware_result(text, name)
    except RecordError as error:
        return error
