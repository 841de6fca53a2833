"""The interface through which `init` configures a PF; `mooring.nic.vf_settings.RtnetlinkVfSettings` implements it."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from mooring.nic.settings import VfSettings


class VfSettingsWriter(Protocol):
    """Sets a PF up, and configures it and its VFs; methods raise OSError with the kernel's errno."""

    def bring_up(self, pf: str) -> None: ...

    def permanent_address(self, pf: str) -> str | None: ...

    def set_mtu(self, pf: str, mtu: int) -> None: ...

    def read_all(self, pf: str) -> Mapping[int, VfSettings]: ...

    def write(self, pf: str, vf: int, settings: VfSettings) -> None: ...

    def clear_rates(self, pf: str, vfs: Iterable[int]) -> None: ...

    def write_guid(self, pf: str, vf: int, guid: str) -> None: ...
