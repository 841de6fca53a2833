"""Plan the unit that makes this node's VFs: its files, what starts it, and the files of earlier releases to remove."""

from collections.abc import Iterator

from cli.node.plan.states import File, Host, State

SERVICE, PATH = "mooring-init.service", "mooring-init.path"
RULES = "/etc/udev/rules.d/79-mooring-init.rules"
# The unit of earlier releases, which made VFs on the host only with --advertiser unit.
EARLIER = "mooring-advertiser-init.service"
_HANDED_OVER = " --handed-over"
_NEXT = "# The advertiser's init container has handed an offer over.\nPathExists=/var/lib/mooring/offer/next.yaml\n"
_UNITS = "/etc/systemd/system"

# The kernel sends `bind` when a driver has bound a device (driver_bound in drivers/base/dd.c, Linux 6.12). The PF has
# no VFs then, because the driver's removal removed them (mlx5_sriov_disable in mlx5_core's remove_one, ice_free_vfs in
# ice_remove). Only PFs have sriov_numvfs (sriov_pf_attrs_are_visible in drivers/pci/iov.c). Class 0x02 is network. The
# rule makes a folder instead of starting the unit: systemd does not start a running unit again, so a bind during a run
# would be lost.
_RULES = """\
# A PF whose driver was bound has no VFs. mooring-init.path detects the folder, and mooring-init.service makes the VFs.
ACTION!="bind", GOTO="mooring_init_end"
SUBSYSTEM!="pci", GOTO="mooring_init_end"
ATTR{class}!="0x02*", GOTO="mooring_init_end"
TEST!="sriov_numvfs", GOTO="mooring_init_end"
RUN+="/bin/mkdir -p -m 0700 /run/mooring"
RUN+="/bin/mkdir -p /run/mooring/init/bound/%k"
LABEL="mooring_init_end"
"""


def service(text: str, advertiser: str) -> str:
    """Return the service's text. Without a DaemonSet no offer is handed over, so `init` uses the operator's file."""
    return text.replace(_HANDED_OVER, "") if advertiser == "unit" else text


def path_unit(text: str, advertiser: str) -> str:
    """Return the path unit's text. Without a DaemonSet it ignores handed-over offers, because `init` takes none."""
    return text.replace(_NEXT, "") if advertiser == "unit" else text


def rules() -> tuple[str, State]:
    """Return path and content of the udev rules."""
    return RULES, File(_RULES)


def earlier(host: Host) -> Iterator[tuple[str, State]]:
    """Yield the paths of an earlier release that are removed."""
    for path in (f"{_UNITS}/multi-user.target.wants/{EARLIER}", f"{_UNITS}/{EARLIER}"):
        if host.at(path) is not None:
            yield path, None
