"""What `init` asks of a PF's netdev; `mooring.nic.vf_settings.RtnetlinkVfSettings` is the kernel's."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from mooring.nic.settings import VfSettings


class VfSettingsWriter(Protocol):
    """Opens a PF and sets it and its VFs; raises OSError with the kernel's errno."""

    def bring_up(self, pf: str) -> None: ...

    def set_mtu(self, pf: str, mtu: int) -> None: ...

    def read_all(self, pf: str) -> Mapping[int, VfSettings]: ...

    def write(self, pf: str, vf: int, settings: VfSettings) -> None: ...

    def clear_rates(self, pf: str, vfs: Iterable[int]) -> None: ...

    def write_guid(self, pf: str, vf: int, guid: str) -> None: ...
