"""Read the manifests that the command line names."""

import sys
from pathlib import Path


def read_text(file: str) -> str:
    """Read a file, or standard input; raise RuntimeError with the message for a person.

    A byte that is not UTF-8 becomes a surrogate, which YAML does not allow.
    """
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except FileNotFoundError:
        raise RuntimeError(f"file {file!r} does not exist") from None
    except IsADirectoryError:
        raise RuntimeError(f"file {file!r} is a directory: name the files in it") from None
    except OSError as unreadable:
        raise RuntimeError(f"file {file!r} cannot be read: {unreadable.strerror}") from unreadable
    return content.decode("utf-8", errors="surrogateescape")
