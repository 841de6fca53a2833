"""Call a pod's CNI chain: loopback, then the one conflist of the conf folder, plugin after plugin.

A call that is cancelled kills its plugin at once, as containerd does when its client disconnects.
"""

import asyncio
import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from devcluster.runtime import cnicalls
from devcluster.runtime.child import kill_group
from devcluster.runtime.cnicalls import LOOPBACK, Attachment, Document, Network, NetworkError

_COMMANDS = {"add": "ADD", "delete": "DEL"}  # libcni's errors name the verb, plugins get the command.


@dataclass(slots=True)
class Chain:
    """The plugins in ``bin_folder`` under the conflist in ``conf_folder``, which is read again for each call.

    ``environment`` is inherited by the plugins. ``results`` keeps ADD's result until DEL has succeeded, by network and
    container id, as libcni's cache does.
    """

    bin_folder: Path
    conf_folder: Path
    environment: Mapping[str, str]
    results: dict[tuple[str, str], Document] = field(default_factory=dict)

    async def add(self, attachment: Attachment) -> tuple[str, ...]:
        """Attach a sandbox and return its addresses; raise NetworkError, after which `delete` is still due."""
        await self._add(LOOPBACK, _loopback(attachment))
        return cnicalls.pod_ips(await self._add(self._network(), attachment), attachment.ifname)

    async def delete(self, attachment: Attachment) -> None:
        """Detach a sandbox; raise NetworkError if a plugin fails, without calling those before it in the chain."""
        await self._delete(LOOPBACK, _loopback(attachment))
        await self._delete(self._network(), attachment)

    def _network(self) -> Network:
        """Return the conflist that sorts first, as with max_conf_num = 1."""
        found = sorted(self.conf_folder.glob("*.conflist"))
        if not found:
            raise NetworkError(f"cni config uninitialized: no network config found in {str(self.conf_folder)!r}")
        return cnicalls.parse_conflist(found[0].read_text(encoding="utf-8"))

    async def _add(self, network: Network, attachment: Attachment) -> Document:
        result: Document | None = None
        for plugin in network.plugins:
            stdout = await self._call("add", network, plugin, attachment, result)
            result = cnicalls.standard_result(stdout, network.version)
        assert result is not None, "a network has plugins"
        self.results[network.name, attachment.container_id] = result
        return result

    async def _delete(self, network: Network, attachment: Attachment) -> None:
        previous = self.results.get((network.name, attachment.container_id))
        try:
            for plugin in reversed(network.plugins):
                await self._call("delete", network, plugin, attachment, previous)
        except NetworkError as problem:
            if not cnicalls.is_gone(problem, attachment.netns):
                raise
        self.results.pop((network.name, attachment.container_id), None)

    async def _call(
        self, verb: str, network: Network, plugin: Document, attachment: Attachment, previous: Document | None
    ) -> str:
        executable = self.bin_folder / str(plugin["type"])
        if not executable.exists():
            raise NetworkError(f'failed to find plugin "{plugin["type"]}" in path [{self.bin_folder}]')
        variables = cnicalls.environment(_COMMANDS[verb], attachment, str(self.bin_folder))
        stdin = json.dumps(cnicalls.configuration(network, plugin, attachment, previous))
        status, stdout, stderr = await _execute(executable, {**self.environment, **variables}, stdin)
        if status != 0:
            raise cnicalls.failure(plugin["type"], verb, stdout, stderr)
        return stdout


def _loopback(attachment: Attachment) -> Attachment:
    return dataclasses.replace(attachment, ifname="lo")


async def _execute(executable: Path, environment: Mapping[str, str], stdin: str) -> tuple[int, str, str]:
    pipe = asyncio.subprocess.PIPE
    plugin = await asyncio.create_subprocess_exec(
        executable, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
    )
    try:
        stdout, stderr = await plugin.communicate(stdin.encode())
    except asyncio.CancelledError:
        kill_group(plugin)
        await plugin.wait()
        raise
    return await plugin.wait(), stdout.decode(errors="replace"), stderr.decode(errors="replace")
