"""Build the answer of ``/getpfs``: every PF with its VFs, in the format of rit-k8s-rdma's daemon, from live state.

    [{"name":"enp4s0f0","used_tx_rate":0,"capacity_tx_rate":100000,"used_vfs":0,"capacity_vfs":120,"vfs":[{"vf":0,…}]}]

``used_tx_rate`` is the sum of min_tx_rate over the VFs of the PF and of other PFs on the same cable. ``used_vfs``
counts the VFs that are not available, assigned or out. Rates are in Mb/s.
"""

from collections import Counter
from collections.abc import Mapping

from mooring.annotations.inventory import Inventory, Pf
from mooring.nic.settings import LinkState, VfSettings
from mooring.records.ledger import LedgerEntry

# The values in MOFED's sysfs, which rit-k8s-rdma's daemon returned.
_LINK_STATES: dict[LinkState, str] = {"auto": "Follow", "enable": "Up", "disable": "Down"}
_NO_MAC = "00:00:00:00:00:00"

Settings = Mapping[str, Mapping[int, VfSettings]]


def pfs_document(
    inventory: Inventory, settings: Settings, held: Mapping[str, LedgerEntry | None]
) -> list[dict[str, object]]:
    """Return the document. ``settings`` are the kernel's by PF and VF, ``held`` the ledger's entries by PCI address."""
    pages = [(pf, _pf(pf, settings.get(pf.name, {}), held)) for pf in inventory.pfs]
    rates: Counter[str] = Counter()
    for pf, (_, rate) in pages:
        rates[_cable(pf)] += rate
    return [{**document, "used_tx_rate": rates[_cable(pf)]} for pf, (document, _) in pages]


def _cable(pf: Pf) -> str:
    return f"pf {pf.name}" if pf.port is None else f"port {pf.port}"


def _pf(
    pf: Pf, settings: Mapping[int, VfSettings], held: Mapping[str, LedgerEntry | None]
) -> tuple[dict[str, object], int]:
    """Return a PF's document, and the sum of its own VFs' min rates."""
    settings_of_vfs = {index: _settings(pf, index, settings, held) for index in pf.vfs}
    usable = pf.usable
    entries = {index: held.get(pf.vf_pci(index)) for index in pf.vfs}
    shares = {index for index, entry in entries.items() if entry is not None and entry.share}
    indexes_in_use = {index for index in pf.vfs if index not in usable or pf.vf_pci(index) in held}
    document = {
        "name": pf.name,
        "used_tx_rate": 0,
        "capacity_tx_rate": pf.offer_mbps,
        "used_vfs": len(indexes_in_use),
        "capacity_vfs": len(pf.vfs),
        "vfs": [_vf(index, vf, allocated=index in indexes_in_use) for index, vf in settings_of_vfs.items()],
    }
    return document, sum(vf.min_tx_rate or 0 for index, vf in settings_of_vfs.items() if index not in shares)


def _settings(
    pf: Pf, index: int, settings: Mapping[int, VfSettings], held: Mapping[str, LedgerEntry | None]
) -> VfSettings:
    """Return a VF's settings from the kernel or, if its driver reports none, from the ledger."""
    if index in settings:
        return settings[index]
    entry = held.get(pf.vf_pci(index))
    return entry.set if entry is not None else VfSettings()


def _vf(index: int, vf: VfSettings, *, allocated: bool) -> dict[str, object]:
    return {
        "vf": index,
        "mac": vf.mac or _NO_MAC,
        "vlan": vf.vlan or 0,
        "qos": vf.qos or 0,
        "vlan_proto": "802.1Q" if vf.vlan else "N/A",
        "spoof_check": _switch(vf.spoofchk),
        "trust": _switch(vf.trust),
        "link_state": _LINK_STATES[vf.link_state or "auto"],
        "min_tx_rate": vf.min_tx_rate or 0,
        "max_tx_rate": vf.max_tx_rate or 0,
        "vgt_plus": "OFF",
        "rate_group": 0,
        "allocated": allocated,
    }


def _switch(on: bool | None) -> str:
    return "ON" if on else "OFF"
