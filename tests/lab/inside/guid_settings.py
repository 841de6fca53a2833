"""VF settings of a PF that takes GUIDs, which the lab's do not: they stand in a file beside the PF."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mooring.nic.settings import VfSettings
from mooring.nic.vf_settings import RtnetlinkVfSettings


@dataclass(frozen=True, slots=True)
class GuidVfSettings(RtnetlinkVfSettings):
    """The kernel's own, and GUIDs: a JSON object by VF number in ``guids``."""

    guids: Path

    def read(self, pf: str, vf: int) -> VfSettings:
        return replace(RtnetlinkVfSettings.read(self, pf, vf), guid=json.loads(self.guids.read_text()).get(str(vf)))

    def read_all(self, pf: str) -> Mapping[int, VfSettings]:
        return {vf: self.read(pf, vf) for vf in RtnetlinkVfSettings.read_all(self, pf)}

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        RtnetlinkVfSettings.write(self, pf, vf, replace(settings, guid=None))
        if settings.guid is not None:
            self.guids.write_text(json.dumps(json.loads(self.guids.read_text()) | {str(vf): settings.guid}))
