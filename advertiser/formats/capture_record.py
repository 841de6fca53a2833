"""Read and write ``captured.json``: the host data of a capture that is not in sysfs.

    {"v":1,"boot":"5f1c…","altnames":{"ens1f0np0":["enp59s0f0np0"]},"programs":{"mooring-cni":"0.1.0"},
     "preparing":["0000:3b:00.1"],"eswitch":{"0000:3b:00.0":"legacy"},
     "held":{"0000:3b:00.2":{"phase":"held","boot":"5f1c…","uid":"8c2f…"},"0000:3b:00.3":null}}

``held`` has only those fields of the ledger that decide whether a VF is usable, so no pod name and no address; null is
an entry that cannot be read. ``eswitch`` are the modes that devlink reported; older records lack it.
"""

import re
from dataclasses import replace

from advertiser.inventory.facts import EswitchMode, Host
from mooring import names
from mooring.errors import RecordError
from mooring.parsing import Value, dump, parse
from mooring.records.ledger import LedgerEntry, Netns, Original

FILE = "captured.json"
_KNOWN = frozenset({"v", "boot", "altnames", "programs", "preparing", "eswitch", "held"})
_MOST = 65_536
# udev's names by MAC address (net_id in systemd): en, ib, sl, wl, ww, then x and twelve digits.
_BY_MAC = re.compile(r"[a-z]{2}x[0-9a-f]{12}", re.ASCII)


def dump_capture_record(host: Host) -> str:
    """Return the record as JSON, without altnames that contain a MAC address."""
    altnames = {
        netdev: [name for name in altnames_of_netdev if not _BY_MAC.fullmatch(name)]
        for netdev, altnames_of_netdev in host.altnames.items()
    }
    return dump(
        {
            "v": 1,
            "boot": host.boot,
            "altnames": {
                netdev: altnames_of_netdev for netdev, altnames_of_netdev in altnames.items() if altnames_of_netdev
            },
            "programs": dict(host.programs),
            "preparing": sorted(host.preparing),
            "eswitch": dict(host.eswitch),
            "held": {address: _dump_held(entry) for address, entry in host.ledger.items()},
        }
    )


def restore_record(host: Host, text: str) -> Host:
    """Return ``host``, read from a captured tree, with the data of the record ``text``; raise RecordError."""
    document = parse(text, FILE, RecordError).version(1).fields(_KNOWN)
    entries = document.required("held").fields().items()
    altnames = document.required("altnames").fields().items()
    programs = document.required("programs").fields().items()
    return replace(
        host,
        boot=document.required("boot").string(longest=64),
        ledger={address: _held(address, value) for address, value in entries},
        unsettled=frozenset(),
        altnames={netdev: tuple(name.string(longest=128) for name in value.items(_MOST)) for netdev, value in altnames},
        programs={program: value.string(longest=128) for program, value in programs},
        preparing=frozenset(names.address(address) for address in document.required("preparing").items(_MOST)),
        eswitch=document.optional("eswitch", _modes) or {},
    )


def _modes(value: Value) -> dict[str, EswitchMode]:
    return {address: mode.choice("legacy", "switchdev") for address, mode in value.fields().items()}


def _dump_held(entry: LedgerEntry | None) -> dict[str, str] | None:
    return None if entry is None else {"phase": entry.phase, "boot": entry.boot, "uid": entry.uid}


def _held(address: str, value: Value) -> LedgerEntry | None:
    if value.raw is None:
        return None
    document = value.fields({"phase", "boot", "uid"})
    return LedgerEntry(
        pci=address,
        pf="",
        vf=0,
        phase=document.required("phase").choice("taking", "held", "returning"),
        boot=document.required("boot").string(longest=64),
        uid=names.uid(document.required("uid")),
        pod="",
        container="",
        ifname="",
        netns=Netns("", 0),
        original=Original(),
    )
