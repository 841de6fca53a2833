# SPDX-License-Identifier: GPL-2.0
"""Turn an unpacked Linux into the lab's.

Adds the modelled chip below mlx5_core; to Linux 6.12 also the simulated NIC, and soft-RoCE devices that change their
netns. No file of mlx5_core or mlx5_ib is edited.

    python3 edit_tree.py TREE            edit what is not edited yet, copy our files
    python3 edit_tree.py --check TREE    exit status 1 where TREE is absent or was edited by other expressions
    python3 edit_tree.py --chip TREE     only what the modelled chip needs: of 6.12 and of newer kernels

Each edit names a place in a file of the kernel by a regular expression, which must match exactly once: a kernel whose
file differs fails here, with the file and the expression. Edited trees are left as they are, and a file of ours is
copied only where it differs, so that a build goes on where it stopped.
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
MARK = "mooring-lab-edited"

# Our files, by the folder of the kernel in which they are compiled.
OURS = {
    "drivers/net/simnic": ("simpci.c", "simvf.c", "simvf.h", "simvf_ethtool.c"),
    "drivers/infiniband/sw/rxe": ("rxe_netns.h", "rxe_netns.c"),
}
CHIP = {"drivers/net/mlx5chip": tuple(f"mlx5chip/{path.name}" for path in sorted((HERE / "mlx5chip").glob("*")))}
MAKEFILE = "obj-y := simvf.o simvf_ethtool.o simpci.o\n"

NET_C = "drivers/infiniband/sw/rxe/rxe_net.c"
QP_C = "drivers/infiniband/sw/rxe/rxe_qp.c"
VERBS_C = "drivers/infiniband/sw/rxe/rxe_verbs.c"
HEADER = r'(#include "rxe_loc.h"\n)'
WITH_OURS = r'\1#include "rxe_netns.h"' + "\n"

# Each is a file, an expression and what replaces its match.
CHIP_EDITS = (
    ("drivers/net/Makefile", r"\Z", "obj-y += mlx5chip/\n"),
    # mlx5_ib compiles for User-Mode Linux, where its menu is left out.
    (
        "drivers/infiniband/Kconfig",
        r'(source "drivers/infiniband/hw/mlx5/Kconfig"\n)',
        r"endif\n\1if !UML\n",
    ),
    # A function of the chip has two interrupts: 64 are enough for 30 functions.
    ("arch/um/include/asm/irq.h", r"(UM_LAST_SIGNAL_IRQ \+ )64\b", r"\g<1>1024"),
    # mlx5_core maps a function's BAR four times. There are 1024 areas of 2 MB now, where 128 of 16 MB were.
    ("lib/logic_iomem.c", r"(#define AREA_SHIFT\s+)24\b", r"\g<1>21"),
)
EDITS = (
    *CHIP_EDITS,
    ("drivers/net/Makefile", r"\Z", "obj-y += simnic/\n"),
    # Processors with AMX have more registers than 6.12 reserves room for; newer kernels measure it when they boot.
    ("arch/x86/um/user-offsets.c", r"(HOST_FP_SIZE, )\d+", r"\g<1>16384"),
    (NET_C, HEADER, WITH_OURS + "#include <net/netns/generic.h>\nstatic struct sock *rxe_ns_sk6(struct net *net);\n"),
    (NET_C, r"static struct rxe_recv_sockets \w+;\n", ""),
    (NET_C, r"(ip_route_output_key\()&init_net", r"\1dev_net(ndev)"),
    (NET_C, r"sock_net\(\w+\.sk6->sk\),\s+\w+\.sk6->sk", "dev_net(ndev), rxe_ns_sk6(dev_net(ndev))"),
    # A name with a number that the kernel chooses is a driver's name, which udev may change.
    (NET_C, r"(?=ib_mark_name_assigned_by_user\()", "if (!strchr(ibdev_name, '%'))\n\t\t"),
    (NET_C, r"(case NETDEV_UNREGISTER:)", r"\1\n\t\tif (!rxe_netdev_vanishes(ndev))\n\t\t\tbreak;"),
    (NET_C, r"(?s)static int rxe_net_ipv4_init\(.*\Z", '#include "rxe_netns.c"\n'),
    (QP_C, HEADER, WITH_OURS),
    (QP_C, r"(sock_create_kern\()&init_net", r"\1rxe_device_net(rxe)"),
    (QP_C, r"(?s)(static void rxe_qp_do_cleanup\(.*?qp_timeout_jiffies = 0;)", r"\1\n\trxe_release_gsi(qp);"),
    (VERBS_C, r'(#include "rxe_hw_counters.h"\n)', WITH_OURS),
    (VERBS_C, r"(ib_set_device_ops\(dev, &rxe_dev_ops\);)", r"\1\n\trxe_lab_device(dev, ndev);"),
)


def edit(tree: Path, edits: tuple[tuple[str, str, str], ...]) -> None:
    """Apply every edit; raise ``SystemExit`` where a place is not found once."""
    texts = {name: (tree / name).read_text() for name, _, _ in edits}
    for name, expression, replacement in edits:
        texts[name], found = re.subn(expression, replacement, texts[name])
        if found != 1:
            raise SystemExit(f"{name}: {expression!r} matches {found} times, not once: another Linux?")
    for name, text in texts.items():
        (tree / name).write_text(text)


def copy_ours(tree: Path, *, only_chip: bool) -> None:
    """Copy our files where they differ."""
    files = CHIP if only_chip else CHIP | OURS
    wanted = {
        Path(folder) / Path(name).name: (HERE / name).read_text() for folder, names in files.items() for name in names
    }
    if not only_chip:
        wanted[Path("drivers/net/simnic/Makefile")] = MAKEFILE
    for name, text in wanted.items():
        target = tree / name
        target.parent.mkdir(exist_ok=True)
        if not target.exists() or target.read_text() != text:
            target.write_text(text)


def main() -> int:
    """Edit or check the tree that the command line names; return the exit status."""
    *options, folder = sys.argv[1:]
    tree = Path(folder)
    mark = tree / MARK
    edits = CHIP_EDITS if "--chip" in options else EDITS
    if "--check" in options:
        return 0 if mark.exists() and mark.read_text() == repr(edits) else 1
    if not mark.exists():
        edit(tree, edits)
        mark.write_text(repr(edits))
    copy_ours(tree, only_chip=edits is CHIP_EDITS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
