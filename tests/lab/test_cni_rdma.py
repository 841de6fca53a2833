"""RDMA devices and VF settings on the lab kernel: who has which device, when a VF is free, what a NIC makes of it."""

import sys
from pathlib import Path

import pytest

from tests.lab.calls.rdma_calls import FIRST, Lab, record, run, second
from tests.lab.nics import EACH, INFINIBAND, SIMVF, Nic, with_nic

pytestmark = [pytest.mark.lab, pytest.mark.slow]


RACE = Path(__file__).parent / "inside/rdma_race.py"
ON_EACH = pytest.mark.parametrize("nic", EACH)


# A process of the pod that keeps a queue pair on the VF's device: a server that waits for a client which never comes.
# On InfiniBand one that connects to nothing: ibv_rc_pingpong ends where its port has no LID, as before it is active.
SERVER = f"""
keep() {{
  case $pf in
    ib0)
      ${{1:-ip netns exec pod}} {sys.executable} $verbs 0000:3b:01.0 qp >/tmp/server 2>&1 & server=$!
      until_true grep -q ready /tmp/server ;;
    *)
      ${{1:-ip netns exec pod}} ibv_rc_pingpong -e -d $rdma0 -g 0 >/tmp/server 2>&1 & server=$!
      until_true sh -c 'rdma res show qp | grep -q "type RC"' ;;
  esac
}}
"""


@ON_EACH
def test_rdma_devices_follow_their_vfs_in_exclusive_mode(lab: Lab, nic: Nic) -> None:
    """ADD takes both devices into the pod and enters them in the ledger; DEL, and a second, bring them home."""
    lines = run(
        with_nic(lab, nic),
        """
        add; devices host; devices pod inside
        inside ip -j link show net1 | jq -c '.[0].flags | contains(["UP"])'
        jq -r .rdma /var/lib/mooring/vfs/*.json | sed "s/$rdma0/rx0/; s/$rdma1/rx1/"
        del; same; del; same
        """,
        nic.vf(0),
        second(nic),
        mode="exclusive",
    )
    assert lines == [
        *("add 0 null", "host []", 'pod ["rx0","rx1"]', "true", "rx0", "rx1"),
        *("del 0", "same", "del 0", "same"),
    ]


@ON_EACH
def test_rdma_devices_return_to_the_host_when_the_namespace_ends(lab: Lab, nic: Nic) -> None:
    """The kernel brings netdev and RDMA device back in its own time; DEL waits for both."""
    vfs = (nic.vf(0), second(nic))
    lines = run(with_nic(lab, nic), "add; ip netns delete pod; del; same", *vfs, mode="exclusive")
    assert lines == ["add 0 null", "del 0", "same"]


@ON_EACH
@pytest.mark.parametrize("end", ["del", "ip netns delete pod; del"])
def test_an_rdma_device_that_the_pod_has_renamed_has_its_name_back(lab: Lab, nic: Nic, end: str) -> None:
    """A pod that may administer its network may do that; monitors of the host know devices by their names."""
    script = f"add; inside rdma dev set $rdma0 name another; {end}; same"
    lines = run(with_nic(lab, nic), script, nic.vf(0), mode="exclusive")
    assert lines == ["add 0 null", "del 0", "same"]


@ON_EACH
def test_rdma_devices_are_left_alone_in_shared_mode(lab: Lab, nic: Nic) -> None:
    """Every namespace sees them: only the netdev moves, and its addresses show in the device's GIDs."""
    vfs = (nic.vf(0), second(nic))
    lines = run(with_nic(lab, nic), "add; devices host; devices pod inside; del; same", *vfs)
    assert lines == ["add 0 null", 'host ["rx0","rx1"]', 'pod ["rx0","rx1"]', "del 0", "same"]


@ON_EACH
def test_an_rdma_device_that_is_elsewhere_is_not_handed_out_without_it(lab: Lab, nic: Nic) -> None:
    """A netdev without its RDMA device would be half a VF: error 102, nothing changed."""
    script = """
        ip netns add other; rdma dev set $rdma0 netns other; prepared
        add; jq -r .msg /tmp/answer | sed s/$rdma0/rx0/; same
        """
    lines = run(with_nic(lab, nic), script, nic.vf(0), mode="exclusive")
    assert lines == ["add 1 102", "rdma device 'rx0' of vf 0000:3b:01.0 is not in the host's network namespace", "same"]


# The kernel's sysfs without the netdev of one VF: what InfiniBand without IPoIB looks like.
NO_NETDEV = """
mkdir -p /tmp/sys/bus/pci/devices /tmp/sys/vf; ln -s /sys/bus/pci/drivers /sys/bus/pci/drivers_probe /tmp/sys/bus/pci
for there in $functions/*; do ln -s $there /tmp/sys/bus/pci/devices; done
for there in $functions/0000:3b:01.0/*; do ln -s $(readlink -f $there) /tmp/sys/vf/${there##*/}; done
rm /tmp/sys/vf/net /tmp/sys/bus/pci/devices/0000:3b:01.0; ln -s /tmp/sys/vf /tmp/sys/bus/pci/devices/0000:3b:01.0
"""


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_a_vf_without_a_netdev_is_handed_out_by_its_rdma_device(lab: Lab, mode: str) -> None:
    """The VF has no name and no address.

    In exclusive mode the device moves; rates are set and restored all the same.
    """
    lines = run(
        lab,
        f"""{NO_NETDEV}
        add; jq -c .interfaces /tmp/answer; devices pod inside; phase; jq -c .original.name /var/lib/mooring/vfs/*.json
        ip -j link show eth0 | jq -c '.[0].vfinfo_list[0].rate.max_tx'
        del; same; add; ip netns delete pod; del; same
        """,
        FIRST | {"link": "infiniband", "max_tx_rate": 700},
        mode=mode,
        conf={"sysfs": "/tmp/sys"},
    )
    inside = '["rx0","rx1"]' if mode == "shared" else '["rx0"]'
    assert lines == [
        *("add 0 null", "[]", f"pod {inside}", "held", "null", "700"),
        *("del 0", "same", "add 0 null", "del 0", "same"),
    ]


def test_an_ethernet_vf_is_not_handed_out_before_its_netdev_is_there(lab: Lab) -> None:
    """While its driver is bound the RDMA device may come first: the netdev is waited for, for so long, else 102."""
    script = f"""{NO_NETDEV}
        add; jq -r .msg /tmp/answer; same
        (sleep 1; ln -s $functions/0000:3b:01.0/net /tmp/sys/vf/net) &
        add; inside ip -j link show net1 | jq -r '.[].ifname'; del; same
        """
    assert run(lab, script, FIRST, conf={"sysfs": "/tmp/sys"}) == [
        *("add 1 102", "vf 0000:3b:01.0 of pf 'eth0' has no network interface on the host", "same"),
        *("add 0 null", "net1", "del 0", "same"),
    ]


@ON_EACH
def test_a_process_that_ends_in_time_is_waited_for(lab: Lab, nic: Nic) -> None:
    """A queue pair outlives the netdev's return in shared mode: DEL waits until it is gone, and rebinds nothing."""
    script = f"{SERVER} add; keep; (sleep 1; kill $server) & del; phase; rebound; same"
    assert run(with_nic(lab, nic), script, nic.vf(0)) == ["add 0 null", "del 0", "none", "0", "same"]


def test_a_process_that_keeps_its_queue_pair_loses_it(lab: Lab) -> None:
    """After the wait the VF's driver is rebound: the VF is free, its netdev restored, and the process has nothing."""
    lines = run(
        lab,
        f"""{SERVER} add; keep; del; phase; rebound
        test -d /proc/$server && echo alive; rdma res show qp | grep -c 'type RC' || true
        same_names
        """,
        FIRST | {"mac": "02:00:00:00:00:77"},
    )
    # The software RDMA device is not a part of the driver and is not made again: a real NIC's is.
    assert lines == ["add 0 null", "del 0", "none", "1", "alive", "0", "same names"]


def test_a_vf_whose_pf_has_autoprobe_off_is_rebound_all_the_same(lab: Lab) -> None:
    """The kernel's own pci_device_can_probe: the VF has its driver again, and no driver_override."""
    lines = run(
        lab,
        f"""echo 0 >$functions/0000:3b:00.0/sriov_drivers_autoprobe
        {SERVER} add; keep; del; phase; rebound
        test -e $functions/0000:3b:01.0/driver && echo bound; cat $functions/0000:3b:01.0/driver_override
        same_names
        """,
        FIRST,
    )
    assert lines == ["add 0 null", "del 0", "none", "1", "bound", "(null)", "same names"]


@ON_EACH
def test_a_vf_that_cannot_be_freed_stays_returning(lab: Lab, nic: Nic) -> None:
    """DEL is successful and the VF is restored, but no pod gets it until the process is gone."""
    lines = run(
        with_nic(lab, nic),
        f"""{SERVER}
        mkdir -p /tmp/sys/bus/pci; ln -s $functions /tmp/sys/bus/pci; conf=/tmp/conf.json
        {record("next", nic.vf(0))} add; keep; del; phase; rebound
        same_names
        add next; jq -r .msg /tmp/answer; del next; phase
        kill $server; wait $server 2>/dev/null || true; add next; phase
        jq -r .pod /var/lib/mooring/vfs/*.json; del next; same
        """,
        nic.vf(0),
        conf={"sysfs": "/tmp/sys", "holdTimeoutSeconds": 0.1},
    )
    assert lines == [
        *("add 0 null", "del 0", "returning", "1", "same names"),
        *("add 1 11", "vf 0000:3b:01.0 is still held by pod 'ns/pod' (uid pod, returning)", "del 0", "returning"),
        *("add 0 null", "held", "ns/next", "del 0", "same"),
    ]


@ON_EACH
def test_a_process_of_the_hosts_own_keeps_its_vf(lab: Lab, nic: Nic) -> None:
    """ADD refuses the VF and names the process; the pod gets it once that has ended."""
    script = f"""
        {SERVER} keep env
        add; jq -r .msg /tmp/answer | sed 's/.*(process/(process/; s/ [0-9]*)/)/'; same
        kill $server; wait $server 2>/dev/null || true; add; del; rebound; same
        """
    refused, who, *rest = run(with_nic(lab, nic), script, nic.vf(0))
    assert (refused, who.startswith("(process ")) == ("add 1 100", True)
    assert rest == ["same", "add 0 null", "del 0", "0", "same"]


@ON_EACH
def test_a_monitor_of_another_namespace_is_no_user(lab: Lab, nic: Nic) -> None:
    """A process that opened the device before the pod did is not the pod's: DEL neither waits nor rebinds."""
    script = f"""
        {SERVER} ip netns add monitor; keep "ip netns exec monitor"
        add; jq -c '.original.users | length' /var/lib/mooring/vfs/*.json; del; rebound; same
        """
    assert run(with_nic(lab, nic), script, nic.vf(0)) == ["add 0 null", "1", "del 0", "0", "same"]


@ON_EACH
def test_a_rebind_that_was_interrupted_is_finished(lab: Lab, nic: Nic) -> None:
    """Killed between unbind and bind, a VF has no driver: DEL binds it and restores what it gets."""
    # Nobody makes the software RDMA device again.
    end = "same names" if nic is SIMVF else "same"
    script = f"""
        add; ip netns delete pod; until_true test -e $functions/0000:3b:01.0/net/net1
        echo 0000:3b:01.0 >$functions/0000:3b:01.0/driver/unbind
        del; phase; {end.replace(" ", "_")}
        """
    lines = run(with_nic(lab, nic), script, nic.vf(0))
    assert lines == ["add 0 null", "del 0", "none", end]


@ON_EACH
def test_nothing_keeps_a_namespace_open(lab: Lab, nic: Nic) -> None:
    """The warm server has handed both out: the namespace dies without a DEL, and the kernel returns them.

    IPoIB's netdev ends with the namespace, and is made again with the RDMA device.
    """
    lines = run(
        with_nic(lab, nic),
        f"""
        {sys.executable} -m cni serve --node-name n1 2>/tmp/server & server=$!
        until_true test -S /run/mooring/cni.sock
        echo 'from cni.forwarder import render; print(render("/run/mooring/cni.sock", ["false"]))' >/tmp/render.py
        {sys.executable} /tmp/render.py >/tmp/cni; chmod +x /tmp/cni
        served() {{
          CNI_COMMAND=$1 CNI_CONTAINERID=pod CNI_NETNS=/run/netns/pod \\
          CNI_ARGS='IgnoreUnknown=1;K8S_POD_NAME=pod;K8S_POD_UID=pod' /tmp/cni </tmp/conf.json >/tmp/answer
        }}
        served ADD; devices host; kill -STOP $server; ip netns delete pod
        until_true sh -c "ls $functions/0000:3b:01.0/net | grep -q ."
        until_true are_home; devices host
        kill -CONT $server; served DEL; same; kill $server; wait $server
        """,
        nic.vf(0),
        second(nic),
        mode="exclusive",
    )
    assert lines == ["host []", 'host ["rx0","rx1"]', "same"]


@pytest.mark.parametrize("late_ms", [0, 300])
def test_a_mac_is_on_the_pf_and_on_the_netdev_whenever_the_nic_brings_it(lab: Lab, late_ms: int) -> None:
    """0 is never, as on mlx5: the netdev gets it from us; a late one is waited for. Both are put back."""
    # Nothing tells that the NIC's late MAC has come: with 0 none comes, and else it is the one that is there.
    script = f"""
        echo {late_ms} >/sys/module/simvf/parameters/late_mac_ms
        add; inside ip -j link show net1 | jq -r '.[0].address'
        ip -j link show eth0 | jq -r '.[0].vfinfo_list[0].address'; sleep 0.5; del; sleep 0.5; same
        """
    lines = run(lab, script, FIRST | {"mac": "02:00:00:00:00:99"})
    assert lines == ["add 0 null", "02:00:00:00:00:99", "02:00:00:00:00:99", "del 0", "same"]


def test_a_netdev_with_another_mac_than_its_admin_mac_gets_it_back(lab: Lab) -> None:
    """A NIC lets an untrusted VF have no other MAC than its admin MAC. Both are as before all the same."""
    script = "ip link set eth0 vf 0 mac 02:00:00:00:00:55; prepared; add; del; same"
    assert run(lab, script, FIRST | {"mac": "02:00:00:00:00:99"}) == ["add 0 null", "del 0", "same"]


def test_spoof_check_holds_a_vf_to_its_own_mac(lab: Lab) -> None:
    """Without an admin MAC every frame would count as forged: it is set to the netdev's before spoofchk is on."""
    script = """
        own=$(cat $functions/0000:3b:01.0/net/*/address)
        add; ip -j link show eth0 | jq -c '.[0].vfinfo_list[0] | [.spoofchk, .address == "'$own'"]'; del; same
        """
    assert run(lab, script, FIRST | {"spoofchk": True}) == ["add 0 null", "[true,true]", "del 0", "same"]


def test_a_networks_mtu_is_set_and_put_back(lab: Lab) -> None:
    """The MTU is set while the netdev is down.

    One that the NIC does not take is refused by name, and nothing changes.
    """
    script = """
        add; inside ip -j link show net1 | jq -c '.[0].mtu'; del; same
        sed -i s/9000/9999/ /tmp/conf.json; add; jq -r .msg,.details /tmp/answer; same
        """
    lines = run(lab, script, FIRST, conf={"networks": {"default": {"mtu": 9000}}})
    assert lines == [
        *("add 0 null", "9000", "del 0", "same", "add 1 101", "vf 0 of pf 'eth0' refuses mtu 9999"),
        *("EINVAL (Invalid argument)", "same"),
    ]


def test_a_refusal_names_the_setting_and_the_errno(lab: Lab) -> None:
    """The kernel stops at the first refusal and does not name the setting; the error has pf, vf, setting and errno."""
    script = "echo 16 >/sys/module/simvf/parameters/refuse; add; jq -r .msg /tmp/answer; same"
    lines = run(lab, script, FIRST | {"mac": "02:00:00:00:00:99", "vlan": 5, "spoofchk": True, "trust": True})
    assert lines == [
        "add 1 101",
        "pf 'eth0' refuses spoofchk True for vf 0: EOPNOTSUPP (Operation not supported)",
        "same",
    ]


@pytest.mark.parametrize("where", ["host", "pod"])
def test_a_netdev_that_was_recreated_is_found_again(lab: Lab, where: str) -> None:
    """IPoIB's netdev has another name after its RDMA device has moved, in the pod or still on the host."""
    program = """
from pathlib import Path
from cni.kernel.ipoib import follow
from cni.kernel.sysfs import Sysfs
follow(Sysfs(Path("/sys")), "0000:3b:01.0", "mo0-3b08", "/run/netns/pod")
"""
    move = "ip link set eth2 netns pod; inside ip link set eth2 name ib0 up" if where == "pod" else ""
    script = f"cat >/tmp/program.py <<'END'\n{program}\nEND\n{move}\n{sys.executable} /tmp/program.py\n"
    lines = run(lab, script + "inside ip -d -j link show mo0-3b08 | jq -c '.[0].parentdev'", FIRST)
    assert lines == ['"0000:3b:01.0"']


def test_every_vf_of_a_full_pf_is_read(lab: Lab) -> None:
    """128 VFs: all of their settings, the bus crossing included; the list with statistics would be cut off."""
    program = """
from mooring.nic.vf_settings import RtnetlinkVfSettings
vf_settings = RtnetlinkVfSettings()
found = vf_settings.read_all("eth0")
print(sorted(found) == list(range(128)), found[127].max_tx_rate)
"""
    script = f"""
        echo 0 >$functions/0000:3b:00.0/sriov_numvfs; echo 128 >$functions/0000:3b:00.0/sriov_numvfs
        ip link set eth0 vf 127 max_tx_rate 321
        cat >/tmp/program.py <<'END'\n{program}\nEND\n{sys.executable} /tmp/program.py
        """
    options = ("-a", "simpci.npf=4 simpci.totalvfs=128")
    assert run(lab, script, FIRST, options=options) == ["True 321"]


def test_a_device_that_is_being_moved_is_missing_and_its_call_is_not_invalid(lab: Lab) -> None:
    """The kernel reports EINVAL for a device in the middle of a move, which is listed again right afterwards.

    Callers try again for a missing device. An "Invalid argument" failed their ADD or DEL.
    """
    script = f"""
        rdma system set netns exclusive; ip link set ib0 up; ip netns add pod
        echo 1 >/sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs
        {sys.executable} {RACE} /run/netns/pod 5
        """
    done = lab(script, "-a", str(INFINIBAND.kernel))
    assert done.stdout.splitlines() == ["raced", "ENODEV"], done.stdout + done.stderr
