"""Files of a folder that a program writes and removes while a test reads it."""

from pathlib import Path


def texts(folder: Path, pattern: str = "*.json") -> dict[str, str]:
    """Return each file's text by its stem; a file that goes between the listing and its reading is left out."""
    found = {}
    for path in sorted(folder.glob(pattern)):
        try:
            found[path.stem] = path.read_text()
        except FileNotFoundError:
            continue
    return found
