"""What archives and images are written from: files and links by their paths, as values."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Member:
    """A file with its contents and mode, or a symbolic link to ``link``. A path that ends with a slash is a folder."""

    content: bytes = b""
    mode: int = 0o644
    link: str = ""
