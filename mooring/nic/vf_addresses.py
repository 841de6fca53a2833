"""Derive the MAC or GUID that `init` gives a VF from its PF's, so that it shows where the VF belongs."""

_LOCALLY_ADMINISTERED = 0x02


def vf_mac(pf_mac: str, index: int) -> str:
    """Return a VF's MAC: locally administered, equal at every boot, different for each VF of each PF of a vendor.

    Its bytes are 02 with bits of the index, the index, a byte for the vendor, and the last three bytes of the PF's MAC,
    which are unique within a vendor's OUI.
    """
    own = bytes.fromhex(pf_mac.replace(":", ""))
    if len(own) != 6 or not 0 <= index < 1 << 14:
        raise ValueError(f"no MAC for VF {index} of a PF with the MAC {pf_mac!r}")
    first = _LOCALLY_ADMINISTERED | index >> 8 << 2
    maker = own[0] ^ own[1] ^ own[2]
    return bytes((first, index & 0xFF, maker, *own[3:])).hex(":")


def vf_guid(pf_guid: str, index: int) -> str:
    """Return a VF's GUID on InfiniBand, derived from the PF's node GUID like a VF's MAC from the PF's MAC.

    ``pf_guid`` has the form of /sys/class/infiniband/*/node_guid: 0c42:a103:0012:3456.
    """
    own = bytes.fromhex(pf_guid.replace(":", ""))
    if len(own) != 8 or not 0 <= index < 1 << 14:
        raise ValueError(f"no GUID for VF {index} of a PF with the GUID {pf_guid!r}")
    first = _LOCALLY_ADMINISTERED | index >> 8 << 2
    return bytes((first, index & 0xFF, own[0] ^ own[1] ^ own[2], *own[3:])).hex(":")
