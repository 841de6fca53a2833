"""A PF without VF settings."""

from collections.abc import Iterable, Mapping

from mooring.nic.settings import VfSettings


class NoVfSettings:
    """VFs that do not exist, or have left the machine, have no settings: reading them is a mistake."""

    def read(self, pf: str, vf: int) -> VfSettings:
        raise AssertionError(f"{pf} vf {vf} is read")

    def read_all(self, pf: str) -> Mapping[int, VfSettings]:
        raise AssertionError(f"{pf} is read")

    def clear_rates(self, pf: str, vfs: Iterable[int]) -> None:
        raise AssertionError(f"rates of vfs {list(vfs)} of {pf} are written")

    def write(self, pf: str, vf: int, settings: VfSettings) -> None:
        raise AssertionError(f"{pf} vf {vf} is written")

    def write_guid(self, pf: str, vf: int, guid: str) -> None:
        raise AssertionError(f"{pf} vf {vf} is written")
