"""One call of mooring-cni on a PF that takes GUIDs, which the lab's do not: they stand in a file beside the PF.

python guid_call.py GUIDS.json <conf.json
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from cni.server.dispatch import answer
from mooring import log
from mooring.settings import VfSettings
from mooring.vf_settings import RtnetlinkVfSettings

GUIDS = Path(sys.argv[1])


class GuidVfSettings(RtnetlinkVfSettings):
    """The kernel's own, and GUIDs."""

    def read(self, pf: str, vf: int) -> VfSettings:
        return replace(super().read(pf, vf), guid=json.loads(GUIDS.read_text()).get(str(vf)))

    def read_all(self, pf: str) -> Mapping[int, VfSettings]:
        return {vf: self.read(pf, vf) for vf in super().read_all(pf)}

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        super().write(pf, vf, replace(settings, guid=None))
        if settings.guid is not None:
            GUIDS.write_text(json.dumps(json.loads(GUIDS.read_text()) | {str(vf): settings.guid}))


log.set_up("guid-call")
done = answer(dict(os.environ), sys.stdin.buffer.read(), GuidVfSettings)
sys.stdout.write(done.text)
sys.exit(done.status)
