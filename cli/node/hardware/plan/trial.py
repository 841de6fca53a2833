"""What is tried on a VF, and what its answers mean: settings that differ from what was found, read-backs, GUIDs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from cli.node.hardware.plan.addresses import PfAddresses
from cli.node.hardware.plan.checks import Answer
from mooring.nic.settings import SETTING_NAMES, VfSettings

NO_MAC = "00:00:00:00:00:00"
# What the PF gives the VF; what it gives it while the VF is in the pod; what the VF tries to give itself.
ADMIN, SECOND, OWN = "admin", "second", "own"
NO_GUID = "00:00:00:00:00:00:00:00"
_VLAN, _QOS = 100, 3
_BEFORE = {"qos": "vlan", "max_tx_rate": "min_tx_rate"}
# Small beside every line rate, and multiples of the coarsest unit that is known (ice and bnxt_en: 1 Mb/s).
_MIN_MBPS, _MAX_MBPS = 100, 1000


def trial(can: Collection[str], found: VfSettings, addresses: PfAddresses) -> VfSettings:
    """Return a value for every setting that the PF supports, each another one than was found."""
    values: Mapping[str, object] = {
        "min_tx_rate": _other(found.min_tx_rate, _MIN_MBPS, _MIN_MBPS * 2),
        "max_tx_rate": _other(found.max_tx_rate, _MAX_MBPS, _MAX_MBPS * 2),
        "mac": addresses.mac(ADMIN),
        "vlan": _other(found.vlan, _VLAN, _VLAN + 1),
        "qos": _other(found.qos, _QOS, _QOS + 1),
        "trust": not found.trust,
        "spoofchk": not found.spoofchk,
        "link_state": _other(found.link_state, "enable", "auto"),
        "guid": addresses.guid(ADMIN),
    }
    return replace(VfSettings(), **{name: values[name] for name in SETTING_NAMES if name in can})  # type: ignore[arg-type]


def _other(found: object, first: object, second: object) -> object:
    return second if found == first else first


def as_found(wanted: VfSettings, found: VfSettings) -> VfSettings:
    """Return the settings that are wanted with the values that the VF has; MAC and GUID as wanted."""
    names = (name for name in wanted.to_fields() if name not in ("mac", "guid"))
    return replace(wanted, **{name: getattr(found, name) for name in names})


def alone(name: str, settings: VfSettings, refused: Collection[str]) -> VfSettings:
    """Return one setting, with the one of the same netlink attribute that was tried before it and not refused.

    The kernel has one attribute for a VLAN and its priority, and one for both rates: the half that is left out is 0.
    """
    names = {name, *(each for each in (_BEFORE.get(name),) if each is not None and each not in refused)}
    return replace(VfSettings(), **{name: getattr(settings, name) for name in names})


def without(settings: VfSettings, names: Collection[str]) -> VfSettings:
    """Return settings without some of them; a priority does not stay without its VLAN."""
    gone = {*names, *(("qos",) if "vlan" in names else ())}
    return replace(settings, **dict.fromkeys(gone))


def read_back(wanted: VfSettings, found: VfSettings, refused: Mapping[str, str]) -> list[Answer]:
    """Judge each setting: ``found`` is what the PF reports, ``refused`` has the message for a setting by name."""
    answers = []
    for name in SETTING_NAMES:
        check, value, there = f"settings.{name.replace('_', '-')}", getattr(wanted, name), getattr(found, name)
        if value is None:
            answers.append(Answer(check, "n/a", {}, "`can` does not list it"))
            continue
        # Addresses stay here: whether they are equal is all that the report needs.
        shown = {} if name in ("mac", "guid") else {"wanted": value, "read": there}
        if name in refused:
            answers.append(Answer(check, "differs", {"wanted": shown.get("wanted")}, refused[name]))
        elif there == value:
            answers.append(Answer(check, "ok", shown))
        else:
            answers.append(Answer(check, "differs", shown, "another value is read back"))
    return answers


@dataclass(frozen=True, slots=True)
class VfState:
    """A VF on the host, as far as a pod may not change it for good."""

    driver: str | None
    rdma: str | None
    netdev: str | None
    altnames: tuple[str, ...] = ()
    mtu: int | None = None
    address: str | None = None
    up: bool = False
    settings: VfSettings = field(default_factory=VfSettings)


def changed(before: VfState, after: VfState) -> list[str]:
    """Return the names of what differs between two states; values may be addresses and are not shown.

    An admin MAC that was not set may be restored as the netdev's own: mlx5 makes a node GUID of MAC 0 that all such VFs
    share (node_guid_gen_from_mac).
    """
    names = [name for name in VfState.__slots__ if name != "settings" and getattr(before, name) != getattr(after, name)]
    pairs = ((name, getattr(before.settings, name), getattr(after.settings, name)) for name in SETTING_NAMES)
    is_own = before.settings.mac == NO_MAC and after.settings.mac == before.address
    return [*names, *(f"settings.{name}" for name, was, now in pairs if was != now and not (name == "mac" and is_own))]


def mac_of(state: VfState) -> str | None:
    """Return the MAC of a VF: its admin MAC, without one its netdev's."""
    return state.settings.mac if state.settings.mac not in (None, NO_MAC) else state.address


def mac_kind(mac: str | None, addresses: PfAddresses) -> str:
    """Describe a MAC without showing it."""
    known = {None: "none", NO_MAC: "zero"} | {addresses.mac(purpose): purpose for purpose in (ADMIN, SECOND, OWN)}
    return known.get(mac, "other")


def guid_kind(guid: str | None, admin_mac: str | None, set_guid: str | None) -> str:
    """Describe a node GUID as sysfs shows it (``506b:4b03:00ab:cdef``) without the GUID itself.

    A GUID that is made of a MAC is that MAC with ff:fe in its middle, as mlx5 makes it (node_guid_gen_from_mac in
    drivers/net/ethernet/mellanox/mlx5/core/eswitch.c of Linux 6.12).
    """
    digits = (guid or "").replace(":", "").lower()
    if not digits:
        return "unreadable"
    if int(digits, 16) == 0:
        return "zero"
    known = {_of_mac(NO_MAC): "of-mac-zero"}
    if admin_mac is not None:
        known |= {_of_mac(admin_mac): "of-admin-mac", _of_mac(admin_mac, flip=True): "of-admin-mac-flipped"}
    if set_guid is not None:
        known[set_guid.replace(":", "")] = "as-set"
    return known.get(digits, "other")


def set_guid_kind(guid: str | None, given: str) -> str:
    """Describe the GUID that a PF reports of a VF, without showing it."""
    return {None: "none", NO_GUID: "zero", given: "as-set"}.get(guid, "other")


def _of_mac(mac: str, *, flip: bool = False) -> str:
    digits = mac.replace(":", "")
    first = int(digits[:2], 16) ^ (2 if flip else 0)
    return f"{first:02x}{digits[2:6]}fffe{digits[6:]}"
