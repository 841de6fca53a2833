"""Rates of a running pod change on the lab kernel under traffic: real VFs, and the server as a process.

A sends numbered datagrams to B, and talks to it over one TCP connection, from before the first change to after the
last. Both stop only when told to, so that every change happens meanwhile.
"""

import json
import sys

import pytest

from mooring.annotations.rates import PodRates, VfRates, dump_rates
from mooring.records.rates_exchange import HandedOverRates, dump_handed_over
from tests.lab.calls import cni_calls
from tests.lab.nics import ETHERNET, Lab, Nic, with_nic

pytestmark = pytest.mark.lab

_RECEIVER = """
import socket, threading
numbers = set()
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
datagrams.bind(("", 7000))
def count():
    while True:
        numbers.add(datagrams.recv(64))
threading.Thread(target=count, daemon=True).start()
listener = socket.create_server(("", 7001))
print("ready", flush=True)
talk, _ = listener.accept()
lines = talk.makefile("rwb", 0)
for line in lines:
    lines.write(b"%d\\n" % len(numbers) if line == b"count\\n" else line)
"""
_SENDER = """
import os, socket, sys, time
host = sys.argv[1]
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
lines = socket.create_connection((host, 7001)).makefile("rwb", 0)
sent = 0
while not os.path.exists("/tmp/stop"):
    datagrams.sendto(b"%d" % sent, (host, 7000))
    sent += 1
    if sent % 5 == 0:
        lines.write(b"%d\\n" % sent)
        assert lines.readline() == b"%d\\n" % sent
        open("/tmp/sent", "w").write(str(sent))
    time.sleep(0.002)
for _ in range(50):
    time.sleep(0.1)
    lines.write(b"count\\n")
    received = int(lines.readline())
    if received == sent:
        break
print(f"lost {sent - received} of {sent > 20}", flush=True)
"""


def change(generation: int, rates: VfRates) -> str:
    """Return the commands that hand a generation over, wait until it is in force and until more was sent then."""
    text = dump_rates(PodRates("u1", "n1", generation, (rates,), (rates.min_tx_rate or 0,)))
    return f"""
cat >/run/mooring/advertiser/rates/.new <<'END'
{dump_handed_over(HandedOverRates(text))}
END
mv /run/mooring/advertiser/rates/.new /run/mooring/advertiser/rates/u1.json
await 'jq -e ".generation == {generation} and .in_force" /run/mooring/extract/rates/u1.json'
ip -j link show $pf | jq -c '.[0].vfinfo_list[0].rate | [.min_tx, .max_tx]'
more_traffic
"""


@pytest.mark.parametrize("nic", ETHERNET)
@pytest.mark.slow
def test_no_connection_breaks_and_nothing_is_lost_while_rates_change(lab: Lab, nic: Nic) -> None:
    """Raised, lowered, and taken away; DEL then restores what ADD had found, and the next ADD sets what is recorded."""
    pods = (nic.vf(0, network="rail0", min_tx_rate=100, max_tx_rate=2000), nic.vf(1, network="rail0"))
    records = "".join(cni_calls.record(f"u{number}", vf) for number, vf in enumerate(pods, 1))
    raised, lowered, none = VfRates(200, 3000), VfRates(50, 1000), VfRates()
    lines = cni_calls.run(
        with_nic(lab, nic),
        f"""
        {records}
        for pod in u1 u2; do ip netns add $pod; ip -n $pod link set lo up; ask ADD $pod; done
        {sys.executable} -m cni serve 2>/tmp/server.log & server=$!
        await() {{ for _ in $(seq 600); do eval "$1" >/dev/null 2>&1 && return; sleep 0.1; done; cat /tmp/server.log; }}
        more_traffic() {{ was=$(cat /tmp/sent); await '[ $(cat /tmp/sent) -gt $((was + 10)) ]'; }}
        await '[ -d /run/mooring/advertiser ]'; mkdir -p /run/mooring/advertiser/rates
        ip netns exec u2 {sys.executable} -c '{_RECEIVER}' >/tmp/receiver 2>&1 & receiver=$!
        await 'grep -q ready /tmp/receiver'
        there=$(ip -n u2 -j addr show net1 | jq -r '[.[0].addr_info[] | select(.family == "inet")][0].local')
        ip netns exec u1 {sys.executable} -c '{_SENDER}' $there >/tmp/sender 2>&1 & sender=$!
        await '[ -s /tmp/sent ]'
        {change(1, raised)}
        {change(2, lowered)}
        {change(3, none)}
        {change(4, raised)}
        touch /tmp/stop; wait $sender; cat /tmp/sender
        wait $receiver
        jq -c '[.set.min_tx_rate, .set.max_tx_rate, .original.min_tx_rate, .original.max_tx_rate]' \\
          /var/lib/mooring/vfs/0000:3b:01.0.json
        ask DEL u1; ask ADD u1
        ip -j link show $pf | jq -c '.[0].vfinfo_list[0].rate | [.min_tx, .max_tx]'
        ask DEL u1; ask DEL u2; same end
        kill $server; wait $server
        """,
    )
    assert lines[:2] == ["0", "0"]
    shown = [[one.min_tx_rate or 0, one.max_tx_rate or 0] for one in (raised, lowered, none, raised)]
    assert [json.loads(line) for line in lines[2:6]] == shown
    assert lines[6] == "lost 0 of True"
    assert json.loads(lines[7]) == [200, 3000, 0, 0]
    assert lines[8:] == ["0", "0", "[200,3000]", "0", "0", "same end"]
