"""The MAC or GUID that `init` gives a VF, made from its PF's: whoever finds it knows who set it."""

_LOCALLY_ADMINISTERED = 0x02


def vf_mac(pf_mac: str, index: int) -> str:
    """Return a VF's MAC: locally administered, the same at every boot, different for each VF of each PF of a maker.

    02-with-index:index:maker:and the PF's own last three bytes, which are unique within a maker's OUI.
    """
    own = bytes.fromhex(pf_mac.replace(":", ""))
    if len(own) != 6 or not 0 <= index < 1 << 14:
        raise ValueError(f"no MAC for VF {index} of a PF with the MAC {pf_mac!r}")
    first = _LOCALLY_ADMINISTERED | index >> 8 << 2
    maker = own[0] ^ own[1] ^ own[2]
    return bytes((first, index & 0xFF, maker, *own[3:])).hex(":")


def vf_guid(pf_guid: str, index: int) -> str:
    """Return a VF's GUID on InfiniBand, made from the PF's node GUID as a VF's MAC is from a MAC.

    ``pf_guid`` reads as in /sys/class/infiniband/*/node_guid: 0c42:a103:0012:3456.
    """
    own = bytes.fromhex(pf_guid.replace(":", ""))
    if len(own) != 8 or not 0 <= index < 1 << 14:
        raise ValueError(f"no GUID for VF {index} of a PF with the GUID {pf_guid!r}")
    first = _LOCALLY_ADMINISTERED | index >> 8 << 2
    return bytes((first, index & 0xFF, own[0] ^ own[1] ^ own[2], *own[3:])).hex(":")
