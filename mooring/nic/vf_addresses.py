"""Derive the MAC or GUID that `init` gives a VF from its PF's, so that it shows where the VF belongs."""

_LOCAL_BIT = 0x02


def vf_mac(pf_mac: str, index: int) -> str:
    """Return a VF's MAC: locally administered, equal at every boot, different for each VF of each PF of a vendor.

    Its bytes are 02 with bits of the index, the index, a byte for the vendor, and the last three bytes of the PF's MAC,
    which are unique within a vendor's OUI.
    """
    pf_bytes = bytes.fromhex(pf_mac.replace(":", ""))
    if len(pf_bytes) != 6 or not 0 <= index < 1 << 14:
        raise ValueError(f"no MAC for VF {index} of a PF with the MAC {pf_mac!r}")
    first = _LOCAL_BIT | index >> 8 << 2
    maker = pf_bytes[0] ^ pf_bytes[1] ^ pf_bytes[2]
    return bytes((first, index & 0xFF, maker, *pf_bytes[3:])).hex(":")


def vf_guid(pf_guid: str, index: int) -> str:
    """Return a VF's GUID on InfiniBand, derived from the PF's node GUID like a VF's MAC from the PF's MAC.

    ``pf_guid`` has the form of /sys/class/infiniband/*/node_guid: 0c42:a103:0012:3456.
    """
    pf_bytes = bytes.fromhex(pf_guid.replace(":", ""))
    if len(pf_bytes) != 8 or not 0 <= index < 1 << 14:
        raise ValueError(f"no GUID for VF {index} of a PF with the GUID {pf_guid!r}")
    first = _LOCAL_BIT | index >> 8 << 2
    return bytes((first, index & 0xFF, pf_bytes[0] ^ pf_bytes[1] ^ pf_bytes[2], *pf_bytes[3:])).hex(":")
