"""The CNI specification on the lab kernel: CHECK, GC, DEL in all its ways, waiting, show."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.lab.calls.cni_calls import PYTHON, first, record, run, second
from tests.lab.nics import EACH, ETHERNET, Lab, Nic, with_nic

pytestmark = [pytest.mark.lab, pytest.mark.slow]


ON_ETHERNET = pytest.mark.parametrize("nic", ETHERNET, indirect=True)
# What another program sets on the PF behind a pod's back, and what CHECK and `show` say of it.
CHANGES = {
    "ethernet": {
        "max_tx_rate 1000 min_tx_rate 100": "max_tx_rate is 1000, not 2000",
        "vlan 8": "vlan is 8, not 7",
        "trust off": "trust is False, not True",
    },
    "infiniband": {"state auto": "link_state is 'auto', not 'enable'"},
}
MTUS = {"ethernet": 1500, "infiniband": 4092}


@pytest.fixture(params=EACH)
def nic(request: pytest.FixtureRequest) -> Nic:
    """The plain NIC, mlx5 Ethernet, and mlx5 InfiniBand."""
    found: Nic = request.param
    return found


def own(nic: Nic) -> str:
    """Return the MAC or the GUID of the first VF's pod."""
    return "02:00:00:00:00:00:00:99" if nic.link == "infiniband" else "02:00:00:00:00:99"


@pytest.fixture
def lab(lab: Lab, nic: Nic) -> Lab:
    """The lab with that NIC."""
    return with_nic(lab, nic)


def test_check_names_what_the_kernel_has_otherwise(lab: Lab, nic: Nic) -> None:
    """Settings on the PF, MTU, address and state in the pod; each is named, and all is well before."""
    changes = "; ".join(f"ip link set $pf vf 0 {change}" for change in CHANGES[nic.link])
    lines = run(
        lab,
        record("p1", first(nic), second(nic))
        + f"""
        ip netns add p1; ask ADD p1; cp /tmp/answer-p1 /tmp/result-p1; check p1
        {changes}
        ip -n p1 link set net1 mtu 1400; ip -n p1 addr flush dev rdma7 scope global; ip -n p1 link set rdma7 down
        check p1
        ask DEL p1; same end
        """,
    )
    assert lines[:3] == ["0", "0", "1"], lines
    for text in (
        *CHANGES[nic.link].values(),
        f"interface 'net1' has mtu 1400, not {MTUS[nic.link]}",
        "interface 'rdma7' is down",
        "interface 'rdma7' has lost address '10.9.0.3/24'",
    ):
        assert text in lines[3]
    assert lines[4:] == ["0", "same end"]


def test_a_vf_that_the_ledger_has_lost_is_found_in_its_own_pod(lab: Lab, nic: Nic) -> None:
    """It is found by PCI address in the sandbox's namespace, among its pod's own; another plugin's VF stays."""
    lines = run(
        lab,
        record("p1", first(nic))
        + """
        leave_out=$addresses; prepared
        ip netns add p1; ask ADD p1
        rm /var/lib/mooring/vfs/*.json
        theirs=$(netdev 2); ip link set $theirs netns p1
        ask DEL p1
        ip -n p1 -j link show | jq -c 'map(.ifname)' | sed "s/$theirs/theirs/"
        netdev 0
        ip -j link show $pf | jq -c '.[0].vfinfo_list[0]'
        ls /var/lib/mooring/vfs
        ask DEL p1
        """,
    )
    assert lines[:3] == ["0", "0", '["lo","theirs"]']
    assert lines[3] == f"{nic.pf}v0"
    found = json.loads(lines[4])
    assert (found["vlan_list"][0].get("vlan", 0), found["rate"]) == (0, {"max_tx": 0, "min_tx": 0})
    assert (found["trust"], found["link_state"]) == (False, "auto")
    # MAC and GUID stay: with zeros a VF would have no node GUID from its next bind on.
    if nic.link == "infiniband":
        assert found["node guid"] == "02:00:00:00:00:00:00:99"
    else:
        assert found["address"] == "02:00:00:00:00:99"
    assert lines[5:] == ["0"]


def test_a_lost_vf_that_nothing_was_set_on_is_found_as_well(lab: Lab, nic: Nic) -> None:
    """It has no admin MAC; its entry must stay readable, for DEL works by it."""
    lines = run(
        lab,
        record("p1", second(nic))
        + """
        ip netns add p1; ask ADD p1
        rm /var/lib/mooring/vfs/*.json
        ask DEL p1; ls /var/lib/mooring/vfs; ip -n p1 -j link show | jq -c 'map(.ifname)'
        netdev 1
        """,
    )
    assert lines == ["0", "0", '["lo"]', f"{nic.pf}v1"]


def test_del_comes_without_anything_and_for_anybody(lab: Lab, nic: Nic) -> None:
    """No namespace, no result, a wrong namespace, twice, for a pod that never got one, and late for another's VF."""
    lines = run(
        lab,
        record("p1", first(nic), second(nic))
        + record("p2", first(nic))
        + """
        ip netns add p1; ip netns add p2; ask ADD p1
        ask DEL p3; NETNS= ask DEL p3 'del(.prevResult)'; ls /var/lib/mooring/vfs | wc -l
        NETNS= ask DEL p1 'del(.prevResult)'; same empty
        ask DEL p1; same twice
        ask ADD p1; ip netns delete p1
        ask ADD p2; address p2
        NETNS= ask DEL p1; NETNS=/run/netns/p2 ask DEL p1; address p2
        ls /var/lib/mooring/vfs
        ask DEL p2; same end
        """,
    )
    assert lines[:6] == ["0", "0", "0", "2", "0", "same empty"]
    assert lines[6:10] == ["0", "same twice", "0", "0"]
    assert lines[10:14] == [own(nic), "0", "0", own(nic)]
    assert lines[14:] == ["0000:3b:01.0.json", "0", "same end"]


def test_del_after_a_reboot_closes_the_entries_and_replays_nothing(lab: Lab, nic: Nic, tmp_path: Path) -> None:
    """The NIC is fresh, the addresses are gone with /run: DEL ends well; a VF that this boot has unbound stays so."""
    kept = tmp_path / "kept"
    kept.mkdir()
    before = run(lab, record("p1", first(nic), second(nic)) + "ip netns add p1; ask ADD p1", "-s", str(kept))
    assert before == ["0"]
    lines = run(
        lab,
        """
        ls /var/lib/mooring/vfs | wc -l
        echo 0000:3b:01.1 >/sys/bus/pci/devices/0000:3b:01.1/driver/unbind; prepared
        NETNS= ask DEL p1 'del(.prevResult)'
        ls /var/lib/mooring/vfs | wc -l; test -e /sys/bus/pci/devices/0000:3b:01.1/driver || echo unbound
        ip -j link show $pf | jq -c '.[0].vfinfo_list[0].rate'
        NETNS= ask DEL p1
        """,
        "-s",
        str(kept),
    )
    assert lines[:4] == ["2", "0", "0", "unbound"]
    assert (json.loads(lines[4]), lines[5:]) == ({"max_tx": 0, "min_tx": 0}, ["0"])


def test_delegates_of_multus_share_a_pod_and_gc_frees_one_sandbox(lab: Lab, nic: Nic) -> None:
    """Each network has one delegate. What the runtime no longer lists is freed, the rest keeps VF and address."""
    lines = run(
        lab,
        record("p1", first(nic), second(nic))
        + record("p2", second(nic) | {"vf": 2, "pci": "0000:3b:01.2"})
        + """
        ip netns add p1; ip netns add p2
        rail() { echo "del(.prevResult, .ipam)|.name=\\"$1\\"|.network=\\"$1\\""; }
        CNI_IFNAME=net1 ask ADD p1 "$(rail rail0)"; CNI_IFNAME=net2 ask ADD p1 "$(rail rail1)"
        CNI_IFNAME=net2 ask DEL p1 "$(rail rail1)"
        ip -n p1 -j link show | jq -c 'map(.ifname)|sort'
        CNI_IFNAME=net1 ask DEL p1 "$(rail rail0)"; same delegates
        ask ADD p1; ask ADD p2
        valid='.cniVersion="1.1.0"|del(.prevResult)|.["cni.dev/valid-attachments"]'
        ask GC x "$valid=[{\\"containerID\\":\\"p2\\",\\"ifname\\":\\"eth0\\"}]"
        ls /var/lib/mooring/vfs /run/ipam/net | grep -E '^[0-9]'
        ask GC x "$valid=[]"; same gc
        """,
    )
    assert lines[:5] == ["0", "0", "0", '["lo","net1"]', "0"]
    assert lines[5:8] == ["same delegates", "0", "0"]
    assert lines[8:] == ["0", "10.9.0.4", "0000:3b:01.2.json", "0", "same gc"]


def test_a_held_vf_is_waited_for_and_taken_when_it_is_free(lab: Lab, nic: Nic) -> None:
    """Given back by DEL, or by its namespace's death: the ADD that waits has it; else error 11 names the holder."""
    lines = run(
        lab,
        record("p1", first(nic))
        + record("p2", first(nic))
        + """
        ip netns add p1; ip netns add p2; ask ADD p1
        ask ADD p2 .holdTimeoutSeconds=0.2; jq -r '"\\(.code) \\(.msg)"' /tmp/answer-p2
        # An ADD that waits watches two folders, and nothing else here watches any.
        watched() { cat /proc/[0-9]*/fdinfo/* 2>/dev/null | grep -c '^inotify wd:'; }
        waits() { until [ "$(watched)" = 2 ]; do sleep 0.05; done; }
        (ask ADD p2 >/tmp/waited) & waits; ask DEL p1; wait; cat /tmp/waited
        (ask ADD p1 >/tmp/waited) & waits; ip netns delete p2; wait; cat /tmp/waited
        address p1
        ask DEL p1; NETNS= ask DEL p2; same end
        """,
    )
    assert lines[:2] == ["0", "1"]
    assert lines[2] == "11 vf 0000:3b:01.0 is still held by pod 'ns/p1' (uid p1, held)"
    assert lines[3:] == ["0", "0", "0", own(nic), "0", "0", "same end"]


def test_show_tells_what_the_pf_says_and_what_was_wished(lab: Lab, nic: Nic) -> None:
    """The table for people, with a setting that another program has changed."""
    change, said = next(iter(CHANGES[nic.link].items()))
    setting = said.split()[0]
    lines = run(
        lab,
        record("p1", first(nic))
        + f"""
        ip netns add p1; ask ADD p1
        ip link set $pf vf 0 {change}
        {PYTHON} -m cni show
        {PYTHON} -m cni show -o json | jq -c '.vfs[0]|[.netns.alive, .wished.{setting}, .found.{setting}, .drift]'
        ask DEL p1; same end
        """,
    )
    assert lines[1].split() == ["VF", "PCI", "POD", "PHASE", "INTERFACE", "NETNS", "SETTINGS"]
    assert lines[2].split()[:6] == [f"{nic.pf}/0", "0000:3b:01.0", "ns/p1", "held", "net1", "alive"]
    wished, found = (2000, 1000) if nic.link == "ethernet" else ("enable", "auto")
    assert f"{setting}={wished} (is {found})" in lines[2]
    said = f"vf 0000:3b:01.0: {said}"
    assert lines[3] == f"  ! {said}"
    assert json.loads(lines[4]) == [True, wished, found, [said]]
    assert lines[5:] == ["0", "same end"]


def test_an_add_whose_caller_is_killed_is_undone_on_real_vfs(lab: Lab, nic: Nic) -> None:
    """The forwarder before a warm server, killed at a dozen moments; the DEL after it finds everything as before."""
    render = "from cni.forwarder import render; print(render('/run/mooring/cni.sock', ['/bin/false']))"
    lines = run(
        lab,
        record("p1", first(nic), second(nic))
        + f"""
        ip netns add p1
        {PYTHON} -c "{render}" >/tmp/mooring-cni; chmod +x /tmp/mooring-cni
        {PYTHON} -m cni serve --node-name n1 2>/tmp/server.log & server=$!
        until [ -S /run/mooring/cni.sock ]; do sleep 0.1; done
        plugin=/tmp/mooring-cni
        ask ADD p1; ask DEL p1; same warm
        begun=$(date +%s%N); call ADD p1; took_us=$((($(date +%s%N) - begun) / 1000)); ask DEL p1; same timed
        for percent in 5 10 20 30 40 50 60 70 80 90 110 150; do
          after=$(printf '%d.%06d' $((took_us * percent / 100 / 1000000)) $((took_us * percent / 100 % 1000000)))
          plugin="timeout -s KILL $after /tmp/mooring-cni"; call ADD p1
          sleep 0.03; plugin=/tmp/mooring-cni; call DEL p1; echo $status; same $percent
        done
        grep -c 'caller disconnected' /tmp/server.log || true
        kill $server; wait $server; echo $?
        """,
    )
    assert lines[:5] == ["0", "0", "same warm", "0", "same timed"]
    outcomes = [line for line in lines[5:-2] if line != "Killed"]
    assert outcomes[::2] == ["0"] * 12
    assert all(line.startswith("same") for line in outcomes[1::2]), outcomes
    assert int(lines[-2]) > 0
    assert lines[-1] == "0"


@pytest.mark.parametrize(("owner", "inside"), [(1, "rdma7"), (0, "net1")])
def test_an_interface_may_have_an_altname_of_its_pods_vfs_for_a_name(
    lab: Lab, nic: Nic, owner: int, inside: str
) -> None:
    """The altname is its own VF's or the other's. It is removed while the pod has the VFs, and restored after it."""
    lines = run(
        lab,
        record("p1", first(nic), second(nic))
        + f"""
        ip link property add dev $(netdev {owner}) altname kept altname rdma7; state >/tmp/before
        ip netns add p1; ask ADD p1; ip -n p1 -j link show {inside} | jq -c '.[0] | [.ifname, .altnames]'
        ask DEL p1; same end
        """,
    )
    # For its pod's GUID VF 0 is bound again: the netdev is another one.
    kept = "null" if nic.link == "infiniband" and owner == 0 else '["kept"]'
    assert lines == ["0", f'["{inside}",{kept}]', "0", "same end"]


@pytest.mark.parametrize("altname", ["nobodys", "wire0", "mo0-3b09"])
def test_an_altname_that_a_pod_gave_its_vf_keeps_no_vf(lab: Lab, nic: Nic, altname: str) -> None:
    """An unused name, a host link's, or the VF's own temporary name: the first DEL succeeds."""
    lines = run(
        lab,
        record("p1", second(nic))
        + f"""
        ip netns add p1; ask ADD p1; ip -n p1 link property add dev rdma7 altname {altname}
        ask DEL p1; same end
        """,
    )
    assert lines == ["0", "0", "same end"]


def test_an_altname_that_another_link_took_meanwhile_keeps_no_vf(lab: Lab, nic: Nic) -> None:
    """The kernel accepts no link whose altname is taken: it stays behind, and the log has the reason."""
    lines = run(
        lab,
        record("p1", second(nic))
        + """
        ip link property add dev $(netdev 1) altname first altname second
        ip netns add p1; ask ADD p1; ip link property add dev $(netdev 3) altname first
        ask DEL p1; jq -r 'select(.altname) | .event, .altname' /tmp/log-p1; ls /var/lib/mooring/vfs
        ip -j link show $(netdev 1) | jq -c '.[0].altnames'
        """,
    )
    assert lines == ["0", "0", "another link has the vf's altname now", "first", '["second"]']


def test_pods_that_come_at_once_have_each_its_own(lab: Lab, nic: Nic) -> None:
    """Four on one PF, all ADDs together and then all DELs: every pod's VF has its settings, and nothing is left."""
    address = "guid" if nic.link == "infiniband" else "mac"
    settings = '[.["node guid"]]' if nic.link == "infiniband" else "[.address, .vlan_list[0].vlan]"
    own_settings: list[dict[str, Any]] = [{address: f"{own(nic)[:-1]}{n}"} for n in range(4)]
    if nic.link == "ethernet":
        own_settings = [each | {"vlan": 7 + n} for n, each in enumerate(own_settings)]
    pods = [first(nic) | {"vf": n, "pci": f"0000:3b:01.{n}"} | each for n, each in enumerate(own_settings)]
    lines = run(
        lab,
        "".join(record(f"q{number}", vf) for number, vf in enumerate(pods))
        + f"""
        each() {{ for pod in q0 q1 q2 q3; do (ask $1 $pod >/tmp/said-$pod) & done; wait; cat /tmp/said-*; }}
        for pod in q0 q1 q2 q3; do ip netns add $pod; done
        each ADD; ip -j link show $pf | jq -c '.[0].vfinfo_list | map({settings})'
        for pod in q0 q1 q2 q3; do address $pod; done
        each DEL; same end
        """,
    )
    assert lines[:4] == ["0"] * 4, lines
    assert json.loads(lines[4]) == [list(each.values()) for each in own_settings]
    assert lines[5:] == [*(vf[address] for vf in pods), *["0"] * 4, "same end"]


HEARING = """
import socket
ear = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806))
ear.bind(("eth5", 0)); ear.settimeout(90); print("listens", flush=True)
heard = set()
while len(heard) < 2:
    heard.add(socket.inet_ntoa(ear.recv(64)[28:32]))
print(*sorted(heard))
"""


@ON_ETHERNET
def test_two_vfs_of_one_subnet_speak_for_themselves_and_are_heard(lab: Lab, nic: Nic) -> None:
    """Strict ARP on both, one default route, an announcement each; without routing by rules a warning."""
    lines = run(
        lab,
        record("p1", second(nic) | {"vf": 0, "pci": "0000:3b:01.0", "name": "eth0"}, second(nic))
        + f"""
        ip link set eth5 up; state >/tmp/before; cat >/tmp/hearing.py <<'END'\n{HEARING}\nEND
        : >/tmp/heard; {PYTHON} /tmp/hearing.py >/tmp/heard & ear=$!
        until grep -q listens /tmp/heard; do sleep 0.05; done
        ip netns add p1; ask ADD p1 'del(.prevResult) | .ipam.routes=[{{"dst":"0.0.0.0/0"}}]'; wait $ear; cat /tmp/heard
        for name in eth0 rdma7; do
          ip netns exec p1 sh -c "cd /proc/sys/net/ipv4/conf/$name; cat arp_ignore arp_announce rp_filter" | xargs
        done
        ip -n p1 -j route | jq -c 'map(select(.dst == "default").dev)'
        jq -r 'select(.source) | .event' /tmp/log-p1 | sort | uniq -c
        ask DEL p1; same end
        """,
    )
    assert lines[:4] == ["0", "listens", "10.9.0.2 10.9.0.3", "1 2 2"]
    assert (lines[4], json.loads(lines[5])) == ("1 2 2", ["eth0"])
    assert lines[6].split(maxsplit=1) == ["2", "kernel has no policy routing: packets may leave by another link"]
    assert lines[7:] == ["0", "same end"]
