"""What a process has open, by procfs: it shows that a program has come to where it waits."""

from pathlib import Path


def open_files(pid: int) -> set[str]:
    """Return the targets of a process's descriptors; none of a process that has ended."""
    found = set()
    for descriptor in _descriptors(pid, "fd"):
        try:
            found.add(str(descriptor.readlink()))
        except OSError:
            continue
    return found


def watched_folders(pid: int) -> int:
    """Return how many folders a process watches by inotify (proc(5), fdinfo)."""
    count = 0
    for descriptor in _descriptors(pid, "fdinfo"):
        try:
            count += descriptor.read_text().count("inotify wd:")
        except OSError:
            continue
    return count


def _descriptors(pid: int, folder: str) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/{folder}").iterdir())
    except OSError:
        return []
