"""What `release/fetch` needs of the lock: names for apt, and a new lock from what apt offers now."""

import sys
from collections.abc import Iterator
from pathlib import Path

from release.locked import REPOSITORY
from release.runtime.debian import ARCHITECTURES, LOCK, PACKAGES, Package, read_lock

_HEAD = "# Written by `release/fetch runtime-lock`: package, version, architecture, SHA-256.\n"


def newest(shown: str) -> Iterator[Package]:
    """Yield packages from what `apt-cache show --no-all-versions` prints."""
    for paragraph in shown.strip().split("\n\n"):
        lines = (line.partition(": ") for line in paragraph.splitlines() if not line.startswith(" "))
        fields = {name: value for name, _, value in lines}
        yield Package(fields["Package"], fields["Version"], fields["Architecture"], fields["SHA256"])


def main(words: list[str]) -> int:
    """Return the exit status: ``names`` prints what apt should show, ``write`` reads that, ``missing FOLDER`` compares.

    ``missing`` prints, for apt, the packages of the lock whose files are not in a folder.
    """
    if words == ["names"]:
        print(*(f"{name}:{arch}" for name in PACKAGES for arch in ARCHITECTURES))
    elif words == ["write"]:
        packages = dict.fromkeys(newest(sys.stdin.read()))
        (REPOSITORY / LOCK).write_text(_HEAD + "".join(f"{one}\n" for one in packages), encoding="utf-8")
    else:
        for one in read_lock((REPOSITORY / LOCK).read_text(encoding="utf-8")):
            if not Path(words[1], one.file).exists():
                print(f"{one.name}{'' if one.arch == 'all' else f':{one.arch}'}={one.version}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
