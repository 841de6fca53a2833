"""The host that is changed, and running commands on it."""

import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from cli.node.errors import NodeError
from cli.node.look import look
from cli.node.plan.states import Host
from cli.node.plan.steps import Choices, Command

Say = Callable[[str, str], None]  # Called with a step's name and a description of what is done.
_COMMAND_S = 300.0


@dataclass(frozen=True, slots=True)
class Site:
    """The host to change: its root folder, and the progress callback; commands run only if the root is ``/``."""

    root: Path
    say: Say

    def look(self, choices: Choices) -> Host:
        return look(self.root, choices.paths, choices.kubelet_config)

    def run(self, step: str, commands: Iterable[Command], *, check: bool) -> None:
        """Run a step's commands; if ``check``, raise NodeError when one fails."""
        for command in commands:
            if self.root != Path("/"):
                self.say(step, f"not run because the root folder is {self.root}: {' '.join(command)}")
                continue
            self.say(step, f"run {' '.join(command)}")
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_COMMAND_S)
            if check and done.returncode != 0:
                raise NodeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
