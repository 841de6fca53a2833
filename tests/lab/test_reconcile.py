"""The reconciler on the lab kernel: sandboxes end without a DEL, and the server repairs what they left, no more."""

import json
import sys
from pathlib import Path

import pytest

from tests.lab.calls import conf
from tests.lab.calls.conf import ENVIRONMENT
from tests.lab.nics import (
    ALL_MLX5,
    EACH,
    ETHERNET,
    FIRMWARE,
    INFINIBAND,
    LASTING,
    MLX5,
    ONE_OF_EACH,
    Lab,
    Nic,
    with_nic,
)
from tests.support.offers import IN_THE_LAB
from tests.support.seeds import Part

pytestmark = [pytest.mark.lab, pytest.mark.slow]

# Two VFs of one subnet, and the lab's kernel has no policy routing. The IPAM's data lie below the folder that outlives
# the lab's reboot, as a node's own do.
CONF = conf.CONF | {"policyRouting": False, "ipam": conf.host_local("10.9.0.0/24", "/var/lib/mooring/ipam")}
# VF 2 belongs to another program: we never hand it out, and it has settings of its own.
PREPARE = f"""
set -e
rdma system set netns exclusive
ip link set $pf up; ip link set wire0 up
echo 4 >/sys/bus/pci/devices/0000:3b:00.0/sriov_numvfs
as_init_leaves_them 0 1
for vf in 0 1; do
  function=/sys/bus/pci/devices/0000:3b:00.0/virtfn$vf
  # mlx5 makes the RDMA devices itself.
  [ -e $function/infiniband ] || rdma link add rdma$vf type rxe netdev $(ls $function/net)
done
case $pf in
  ib0) ip link set ib0 vf 2 node_guid 02:00:00:00:00:00:00:77; ip link set ib0 vf 2 state enable ;;
  *) ip link set eth0 vf 2 vlan 99 max_tx_rate 500 ;;
esac
{IN_THE_LAB}
mkdir -p /var/lib/mooring/pods /run/mooring
cat >/tmp/conf.json <<'END'
{json.dumps(CONF)}
END
{"".join(f"export {name}='{value}'" + chr(10) for name, value in ENVIRONMENT.items())}
{FIRMWARE}
entries() {{ ls /var/lib/mooring/vfs /var/lib/mooring/ipam/net 2>/dev/null | grep -E '^[0-9]' || true; }}
state() {{
  ip -d -j link show | jq -c '{LASTING}'; rdma -j dev | jq -c 'map([.ifname, .node_guid]) | sort'
  entries
}}
call() {{
  CNI_COMMAND=$1 {sys.executable} -m cni </tmp/conf.json >/tmp/answer 2>/tmp/log || cat /tmp/answer
  compare_firmware $1
}}
serve() {{
  {sys.executable} -m cni serve --reconcile-s ${{1:-10}} --metrics-addr 127.0.0.1:9464 2>>/tmp/server.log & server=$!
}}
metrics() {{ curl -sf http://127.0.0.1:9464/metrics | grep "^mooring_cni_$1" | grep -v _created; }}
looks() {{ metrics last_reconcile | cut -d' ' -f2; }}
# Waits for so many more looks to end: what a look would do, it has done.
more_looks() {{
  for _ in $(seq $1); do last=$(looks || true); until [ "$(looks || true)" != "$last" ]; do sleep 0.1; done; done
}}
same() {{
  begun=$(date +%s)
  until state >/tmp/now; cmp -s /tmp/before /tmp/now; do
    if [ $(($(date +%s) - begun)) -ge 90 ]; then
      echo "different $1"; diff /tmp/before /tmp/now; cat /tmp/server.log; return
    fi
    sleep 0.1
  done
  echo "same $1"
}}
told() {{
  jq -rRc 'fromjson? | select(.event | startswith("orphan")) | [.event, .pod, .uid, .pci, .reason]' /tmp/server.log
}}
vf() {{
  ip -d -j link show $1 | jq -c ".[0].vfinfo_list[$2] | [.rate.min_tx, .rate.max_tx, .vlan_list[0].vlan, .trust]"
}}
prepared
"""
GIVEN_BACK = "orphaned vf released"


def run(lab: Lab, nic: Nic, script: str, *options: str, timeout_s: float = 280) -> list[str]:
    wishes = {name: wish for name, wish in nic.wishes.items() if name not in ("qos", "spoofchk")}
    vfs = [nic.vf(0, **wishes), nic.vf(1, name="rdma7")]
    record = {"v": 1, "pod": "ns/p", "assignment": {"v": 1, "uid": "u1", "node": "n1", "vfs": vfs}}
    written = f"echo '{json.dumps(record)}' >/var/lib/mooring/pods/u1.json\n"
    done = with_nic(lab, nic)(PREPARE + written + script, *options, timeout_s=timeout_s)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("nic", EACH)
def test_a_sandbox_that_died_without_a_del_is_cleaned_up(lab: Lab, nic: Nic) -> None:
    """At the default interval, with links, settings, RDMA devices, ledger and addresses as before."""
    lines = run(
        lab,
        nic,
        """
        ip netns add pod; serve; call ADD; entries | wc -l
        more_looks 2; entries | wc -l
        ip netns delete pod; same all
        told; metrics repairs_total | grep -v ' 0.0'; kill $server; wait $server; echo "ended $?"
        """,
    )
    assert lines[:3] == ["4", "4", "same all"]
    reason = "its network namespace is gone"
    assert sorted(json.loads(line) for line in lines[3:5]) == [
        [GIVEN_BACK, "ns/p", "u1", pci, reason] for pci in ("0000:3b:01.0", "0000:3b:01.1")
    ]
    assert lines[5:] == ['mooring_cni_repairs_total{reason="netns_gone"} 2.0', "ended 0"]


def test_what_a_reload_of_an_mlx5_pf_forgot_is_set_again(lab: Lab) -> None:
    """ADD enrols every VF before the first min; after the reload the server does, and the other program's VF stays."""
    lines = run(
        lab,
        MLX5,
        """
        shares() { tr '\\n' ' ' </sys/module/mlx5chip/parameters/shares; echo; }
        shares; ip netns add pod; call ADD; shares; vf eth0 0
        devlink dev reload pci/0000:3b:00.0 >/dev/null 2>&1; ip link set eth0 up; shares; vf eth0 0
        serve 1; more_looks 2; shares; vf eth0 0; vf eth0 2; metrics resets_total
        jq -e .reset_at /var/lib/mooring/vfs/0000:3b:01.0.json >/dev/null && echo recorded
        # The driver forgot the other program's rate too (mlx5_esw_qos_vport_disable).
        ip link set eth0 vf 2 max_tx_rate 500; call DEL; kill $server; wait $server; echo "ended $?"
        """,
    )
    set_again, lost = "[100,2000,7,true]", "[0,0,7,true]"
    assert [line.strip() for line in lines] == [
        *("0 0 1 0 2 0 3 outside", "0 100 1 1 2 1 3 1", set_again),
        *("0 outside 1 outside 2 outside 3 outside", lost, "0 100 1 1 2 1 3 1", set_again, "[0,0,99,false]"),
        *("mooring_cni_resets_total 1.0", "recorded", "ended 0"),
    ]


# Looks every millisecond, as a shell cannot: an entry may be `returning` for less time than it takes to start `grep`.
KILL_AT = """
import sys, time
from os import kill
from pathlib import Path
server, moment, until = int(sys.argv[1]), float(sys.argv[2]), time.monotonic() + 60

def returning():
    try:
        return any('"returning"' in path.read_text() for path in Path("/var/lib/mooring/vfs").glob("*.json"))
    except FileNotFoundError:
        return False

while not returning():
    if time.monotonic() > until:
        sys.exit("no entry was returning")
    time.sleep(0.001)
time.sleep(moment)
kill(server, 9)
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("nic", ETHERNET)
def test_a_server_killed_while_it_repairs_is_followed_by_one_that_goes_on(lab: Lab, nic: Nic) -> None:
    """SIGKILL at five moments from the first entry that is `returning` on; each next server ends the work."""
    lines = run(
        lab,
        nic,
        f"cat >/tmp/kill_at.py <<'END'\n{KILL_AT}\nEND\n"
        f"kill_at() {{ {sys.executable} -S /tmp/kill_at.py $1 $2; }}"
        """
        for moment in 0 0.01 0.03 0.08 0.2; do
          ip netns add pod; call ADD; ip netns delete pod
          serve; kill_at $server $moment; wait $server || true
          echo "left $(ls /var/lib/mooring/vfs/*.json 2>/dev/null | wc -l)"
          serve; same $moment; kill $server; wait $server || true
        done
        """,
        timeout_s=580,
    )
    told = [line for line in lines if line.startswith(("same", "different", "left"))]
    assert told[1::2] == [f"same {moment}" for moment in (0, 0.01, 0.03, 0.08, 0.2)]
    assert "left 2" in told[0::2]


@pytest.mark.parametrize("nic", EACH)
def test_a_vf_whose_pod_record_is_gone_is_taken_back(lab: Lab, nic: Nic) -> None:
    """The namespace is still there, the runtime knows the pod no more: not at the first look, and at a later one."""
    lines = run(
        lab,
        nic,
        """
        ip netns add pod; call ADD; rm /var/lib/mooring/pods/u1.json
        serve; until looks >/dev/null; do sleep 0.1; done; entries | wc -l
        same all; told; ip -n pod -j link | jq -c 'map(.ifname)'; kill $server; wait $server
        """,
    )
    assert lines[:2] == ["4", "same all"]
    assert {json.loads(line)[4] for line in lines[2:4]} == {"its pod's record is gone"}
    assert json.loads(lines[4]) == ["lo"]


@pytest.mark.parametrize("nic", EACH)
def test_a_namespace_that_lost_its_path_keeps_its_vfs_while_a_process_lives_in_it(lab: Lab, nic: Nic) -> None:
    """Entry and settings do not change for a missing path alone; when the process ends the VFs come back."""
    lines = run(
        lab,
        nic,
        """
        ip netns add pod; call ADD
        ip netns exec pod sleep 1000 & process=$!
        until [ "$(readlink /proc/$process/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
        ip netns delete pod
        { state; firmware; } >/tmp/alive; cat /var/lib/mooring/vfs/*.json >/tmp/entries
        serve 2.5; more_looks 6; { state; firmware; } >/tmp/now
        cmp /tmp/alive /tmp/now && cat /var/lib/mooring/vfs/*.json | cmp - /tmp/entries && echo untouched
        nsenter --net=/proc/$process/ns/net ip -j link | jq -c 'map(.ifname)'
        kill $process; same all; kill $server; wait $server
        """,
    )
    assert lines[0] == "untouched", lines
    assert json.loads(lines[1]) == ["lo", "net1", "rdma7"]
    assert lines[2] == "same all"


@pytest.mark.parametrize("nic", ALL_MLX5)
def test_the_vfs_of_a_deleted_pod_whose_namespace_lives_are_as_before_after_their_rebind(lab: Lab, nic: Nic) -> None:
    """The driver makes addresses and node GUID of what it finds at the PF, which must not be the pod's any more."""
    lines = run(
        lab,
        nic,
        """
        addresses() {
          for vf in 0 1; do
            function=/sys/bus/pci/devices/0000:3b:00.0/virtfn$vf
            cat $function/infiniband/*/node_guid
            ip -j link show $(ls $function/net) | jq -c '.[0] | [.ifname, .permaddr]'
          done
        }
        addresses >/tmp/original
        ip netns add pod; call ADD
        ip netns exec pod sleep 1000 & process=$!
        until [ "$(readlink /proc/$process/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
        ip netns delete pod; rm /var/lib/mooring/pods/u1.json
        serve 1; until [ -z "$(entries)" ]; do sleep 0.1; done; addresses | diff /tmp/original - && echo same
        nsenter --net=/proc/$process/ns/net ip -j link | jq -c 'map(.ifname)'
        kill $process $server; wait $server
        """,
    )
    assert lines == ["same", '["lo"]']


@pytest.mark.parametrize("nic", EACH)
def test_a_detach_that_could_not_end_is_ended_by_the_reconciler(lab: Lab, nic: Nic) -> None:
    """DEL cannot rebind the VFs that a process keeps, and never comes again: once the process ends, all is back."""
    lines = run(
        lab,
        nic,
        """
        ip netns add pod; call ADD
        ip netns exec pod sleep 1000 & process=$!
        until [ "$(readlink /proc/$process/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
        ip netns delete pod; mount -o remount,ro /sys; CNI_NETNS= call DEL | jq -c .code
        serve 1; more_looks 2; jq -r .phase /var/lib/mooring/vfs/*.json
        kill $process; mount -o remount,rw /sys; same all; told; kill $server; wait $server
        """,
    )
    assert lines[:4] == ["11", "returning", "returning", "same all"]
    reasons = {json.loads(line)[4].partition(";")[0] for line in lines[4:]}
    assert reasons == {"its release did not finish"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("nic", EACH)
def test_looks_without_a_pause_disturb_no_call(lab: Lab, nic: Nic) -> None:
    """Four ADDs and DELs of other processes while the server looks all the time: nothing fails or is repaired."""
    lines = run(
        lab,
        nic,
        """
        ip netns add pod; serve 0.001; until looks >/dev/null; do sleep 0.1; done
        for _ in 1 2 3 4; do
          call ADD; jq -r .phase /var/lib/mooring/vfs/*.json | tr '\n' ' '; call DEL; entries
        done
        echo; same all; told; metrics repairs_total; kill $server; wait $server
        """,
        timeout_s=580,
    )
    assert lines[0].split() == ["held"] * 8
    assert lines[1] == "same all"
    assert {line.rpartition(" ")[2] for line in lines[2:]} == {"0.0"}


@pytest.mark.timeout(900)
@ONE_OF_EACH
def test_an_add_killed_at_any_call_is_undone_by_the_reconciler_alone(lab: Lab, part: Part, nic: Nic) -> None:
    """No DEL ever comes: what it was taking is given back at once, what the pod held when its netns ends."""
    setting = {
        "part": part.document(),
        "environment": ENVIRONMENT,
        "conf": CONF,
        "vf_table": None,
        "ledger": "/var/lib/mooring/vfs",
        "ipam": "/var/lib/mooring/ipam",
    }
    script = f"ip netns add pod\ncat >/tmp/setting.json <<'END'\n{json.dumps(setting)}\nEND\n"
    loop = f"{sys.executable} -m tests.lab.inside.orphan_loop"
    program = f"{loop} /tmp/setting.json 2>/tmp/log || {{ tail -3 /tmp/log; exit 1; }}"
    report = json.loads(run(lab, nic, script + program, timeout_s=890)[-1])
    assert report["left_behind"] == {}, f"repeat with --seed {part.seed}; killed were {report['killed']}"
    killed, missed = len(report["killed"]), len(report["missed"])
    assert killed >= 3 * missed, f"not reached: {report['missed']}"
    # The last call of an ADD, the announcement, is in every part: killed there the pod holds its VFs.
    assert report["held"] > 0
    assert report["orphans"] > killed / 8


BEFORE_REBOOT = """
ip link set eth0 vf 0 vlan 55 max_tx_rate 700 trust on spoofchk on
ip netns add pod; call ADD; cat /tmp/answer >/dev/null; entries | wc -l
"""


@pytest.mark.parametrize("nic", ETHERNET)
@pytest.mark.parametrize("swapped", [False, True])
def test_after_a_reboot_entries_are_closed_by_a_reset_and_nothing_is_replayed(
    lab: Lab, tmp_path: Path, nic: Nic, swapped: bool
) -> None:
    """What the VF had before the pod (VLAN 55, 700 Mb/s) is that boot's; what a NIC kept of the pod's is reset.

    Trust was on before the pod asked for it, so it is not the pod's, and stays.
    Also where the PFs come up under each other's names: an entry's PF is the one that the VF belongs to.
    """
    state = tmp_path / "state"
    state.mkdir()
    assert run(lab, nic, BEFORE_REBOOT, "-s", str(state)) == ["4"]
    swap = "ip link set eth0 down; ip link set eth0 name x; ip link set eth1 name eth0; ip link set x name eth1"
    own, other = ("eth1", "eth0") if swapped else ("eth0", "eth1")
    lines = run(
        lab,
        nic,
        f"""
        {swap if swapped else ":"}
        echo 4 >/sys/bus/pci/devices/0000:3b:00.1/sriov_numvfs
        settings="min_tx_rate 100 max_tx_rate 2000 vlan 7 trust on"
        ip link set {other} vf 0 $settings; prepared; ip link set {own} vf 0 $settings
        entries | wc -l
        serve; until [ -z "$(entries)" ]; do sleep 0.1; done
        vf {own} 0; vf {other} 0; vf {own} 2
        told; kill $server; wait $server
        """,
        "-s",
        str(state),
    )
    assert lines[0] == "4"
    closed, of_other_pf, of_nobody = (json.loads(line) for line in lines[1:4])
    assert closed == [0, 0, None, True]
    assert of_other_pf == [100, 2000, 7, True]
    assert of_nobody == [0, 500, 99, False]
    assert {json.loads(line)[4] for line in lines[4:]} == {"it is from an earlier boot"}


def test_after_a_reboot_an_infiniband_vf_keeps_what_init_has_given_it(lab: Lab, tmp_path: Path) -> None:
    """The pod's GUID was that boot's; the entries are closed, and neither it nor the one before it is written."""
    state = tmp_path / "state"
    state.mkdir()
    assert run(lab, INFINIBAND, "ip netns add pod; call ADD; entries | wc -l", "-s", str(state)) == ["4"]
    lines = run(
        lab,
        INFINIBAND,
        """
        ip link set ib0 vf 0 node_guid 02:00:00:00:00:00:00:55; prepared; ip link set ib0 vf 0 state enable
        entries | wc -l; serve; until [ -z "$(entries)" ]; do sleep 0.1; done
        ip -d -j link show ib0 | jq -c '.[0].vfinfo_list[0] | [.link_state, .["node guid"]]'
        told; kill $server; wait $server
        """,
        "-s",
        str(state),
    )
    assert lines[:2] == ["4", '["auto","02:00:00:00:00:00:00:55"]']
    assert {json.loads(line)[4] for line in lines[2:]} == {"it is from an earlier boot"}
