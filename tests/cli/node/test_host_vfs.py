"""The installer keeps the host's network programs from VFs, but not from those that are the host's own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.node.look import look
from cli.node.plan import texts
from cli.node.plan.states import File, Host

USED, FREE = "0000:04:00.3", "0000:04:00.2"
EXCEPTION = f'KERNELS=="{USED}", GOTO="mooring_end"'
FOLDERS = frozenset({"/etc/NetworkManager", "/etc/systemd/network"})
LOOK = "import json, sys; from pathlib import Path; from cli.node.look import look; "
LOOK += "print(json.dumps(sorted(look(Path(sys.argv[1])).used_vfs)))"


def test_no_rule_goes_by_the_name_of_a_driver() -> None:
    """A virtual machine's own NIC is an iavf, ixgbevf or igbvf without a physfn."""
    written = dict(texts.quiet(Host(folders=FOLDERS)))
    rules = [line for text in written.values() for line in text.splitlines() if not line.startswith("#")]
    assert not [line for line in rules if "driver" in line.lower()]
    (mark,) = (line for line in rules if "NM_UNMANAGED" in line)
    assert mark.startswith('TEST=="device/physfn", ENV{MOORING_VF}="1"')


def test_vfs_that_the_host_uses_come_before_the_mark() -> None:
    """They stay excepted: when `install` runs again the host may have its bond down."""
    text = dict(texts.quiet(Host(), {USED}))[texts.UDEV]
    assert text.index(EXCEPTION) < text.index("ENV{MOORING_VF}")
    assert text.index('TEST=="/var/lib/mooring/set-aside/$id", GOTO="mooring_end"') < text.index("ENV{MOORING_VF}")
    assert texts.excepted(Host({texts.UDEV: File(text)})) == {USED}
    assert texts.excepted(Host()) == frozenset()


def test_rdma_devices_of_vfs_that_the_host_uses_are_renamed_as_before() -> None:
    rule = 'ACTION=="add", SUBSYSTEM=="infiniband", PROGRAM="rdma_rename %k NAME_FALLBACK"'
    host = Host({texts.RDMA_PACKAGED[0]: File(rule)})
    written = dict(texts.vf_names(host, {USED}))[texts.RDMA].splitlines()[1:]
    assert written == [
        rule.replace(" PROGRAM", ' TEST!="device/physfn", PROGRAM'),
        rule.replace(" PROGRAM", f' KERNELS=="{USED}", PROGRAM'),
    ]


@pytest.mark.root
def test_vfs_with_a_link_above_or_a_route_are_the_hosts(tmp_path: Path) -> None:
    """Neither a VF with an address, nor a NIC that is no VF of this machine."""
    script = """
    root=$1; shift
    for pci in 0000:04:00.2 0000:04:00.3 0000:07:00.0; do
      name=d$(echo $pci | tr -d :.); name=d${name#d0000}
      ip link add $name type veth peer name p${name#d} && ip link set $name up && ip link set p${name#d} up
      mkdir -p $root/sys/bus/pci/devices/$pci/net/$name
      cat /sys/class/net/$name/ifindex >$root/sys/bus/pci/devices/$pci/net/$name/ifindex 2>/dev/null ||
        ip -o link show $name | cut -d: -f1 >$root/sys/bus/pci/devices/$pci/net/$name/ifindex
      [ $pci = 0000:07:00.0 ] || mkdir $root/sys/bus/pci/devices/$pci/physfn
    done
    ip address add 10.0.0.1/24 dev d04002
    ip link add br0 type bridge && ip link set d04003 master br0 && ip link set d07000 master br0
    exec "$@"
    """
    program = (str(tmp_path), sys.executable, "-c", LOOK, str(tmp_path))
    done = subprocess.run(("unshare", "--net", "sh", "-c", script, "sh", *program), capture_output=True, check=True)
    assert json.loads(done.stdout) == [USED]
    assert FREE in {path.name for path in (tmp_path / "sys/bus/pci/devices").iterdir()}


def test_a_host_without_pci_devices_uses_none(tmp_path: Path) -> None:
    assert look(tmp_path).used_vfs == frozenset()
