"""The unit that makes this node's VFs: its files, what starts it, and what an earlier release had in its place."""

from collections.abc import Iterator

from cli.node.plan.states import File, Host, State

SERVICE, PATH = "mooring-init.service", "mooring-init.path"
RULES = "/etc/udev/rules.d/79-mooring-init.rules"
# Of releases that made VFs on the host only with --advertiser unit.
EARLIER = "mooring-advertiser-init.service"
_HANDED_OVER = " --handed-over"
_NEXT = "# The advertiser's init container has handed an offer over.\nPathExists=/var/lib/mooring/offer/next.yaml\n"
_UNITS = "/etc/systemd/system"

# The kernel emits `bind` once a driver has taken a device (driver_bound in drivers/base/dd.c, Linux 6.12). A PF has no
# VFs then: the driver's removal took them (mlx5_sriov_disable in mlx5_core's remove_one, ice_free_vfs in ice_remove).
# Only PFs have sriov_numvfs (sriov_pf_attrs_are_visible in drivers/pci/iov.c). Class 0x02 is network. The rule leaves a
# folder and starts nothing: systemd starts no unit that runs already, and a bind during a run would be lost.
_RULES = """\
# A PF whose driver was bound has no VFs: mooring-init.path sees the folder, and mooring-init.service makes them.
ACTION!="bind", GOTO="mooring_init_end"
SUBSYSTEM!="pci", GOTO="mooring_init_end"
ATTR{class}!="0x02*", GOTO="mooring_init_end"
TEST!="sriov_numvfs", GOTO="mooring_init_end"
RUN+="/bin/mkdir -p -m 0700 /run/mooring"
RUN+="/bin/mkdir -p /run/mooring/init/bound/%k"
LABEL="mooring_init_end"
"""


def service(text: str, advertiser: str) -> str:
    """Return the service's text: without a DaemonSet nobody hands an offer over, and the operator's file counts."""
    return text.replace(_HANDED_OVER, "") if advertiser == "unit" else text


def path_unit(text: str, advertiser: str) -> str:
    """Return the text of what starts it: no unit takes a handed over offer then, and one that lies there would stay."""
    return text.replace(_NEXT, "") if advertiser == "unit" else text


def rules() -> tuple[str, State]:
    """Return path and state of udev's rules."""
    return RULES, File(_RULES)


def earlier(host: Host) -> Iterator[tuple[str, State]]:
    """Yield what is removed of an earlier release."""
    for path in (f"{_UNITS}/multi-user.target.wants/{EARLIER}", f"{_UNITS}/{EARLIER}"):
        if host.at(path) is not None:
            yield path, None
