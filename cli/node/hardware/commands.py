"""Run the commands of the test in groups of their own: Ctrl-C reaches the test alone, which gives back its VFs."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cli.node.errors import NodeError
from mooring.parsing import decode

_CALL_S = 120.0
_SHOWN_CHARS = 500


class CommandError(NodeError):
    """A command that is not installed, did not end in time or failed; ``output`` is what it printed."""

    def __init__(self, text: str, output: str = "") -> None:
        super().__init__(text)
        self.output = output


def run(command: Sequence[str], stdin: str = "", environment: Mapping[str, str] | None = None) -> str:
    """Return what a command printed; raise CommandError."""
    try:
        process = subprocess.run(
            command,
            input=stdin,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_CALL_S,
            check=False,
            process_group=0,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(f"{command[0]}: {error}") from error
    if process.returncode != 0:
        output = (process.stdout + process.stderr).strip()[-_SHOWN_CHARS:]
        raise CommandError(f"{' '.join(command[:4])} ended with {process.returncode}: {output}", process.stdout)
    return process.stdout


def run_json(command: Sequence[str]) -> Any:
    """Return the JSON that a command printed, None where it printed nothing; raise CommandError."""
    output = run(command)
    try:
        return decode(output) if output.strip() else None
    except ValueError as wrong:
        raise CommandError(f"{' '.join(command[:4])}: {wrong}") from wrong


def attempt(command: Sequence[str]) -> str | None:
    """Return what a command printed, None where it failed or is not installed."""
    try:
        return run(command).strip()
    except CommandError:
        return None


def text_of(path: Path) -> str | None:
    """Return a small file's text without white space around it, None where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder, in order; none where it cannot be read."""
    try:
        return sorted(path.name for path in folder.iterdir())
    except OSError:
        return []
