"""Promise 5 where the firmware breaks: its commands are refused, answered late or never, below the vendor's driver.

The faults are those of commands.c of devcluster/lab/kernel/mlx5chip.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import NamedTuple

import pytest

from tests.lab.calls.rdma_calls import Lab, run, second
from tests.lab.nics import INFINIBAND, MLX5, Nic, with_nic
from tests.support.seeds import Part

pytestmark = pytest.mark.lab

KINDS = ("refused", "refused-after", "unanswered", "unanswered-after", "late")
# With which the PF's driver writes a VF's settings, by their names in debugfs (mlx5_command_str of cmd.c).
SETTINGS = {
    "ethernet": {
        "MODIFY_VPORT_STATE": 0x751,
        "MODIFY_ESW_VPORT_CONTEXT": 0x753,
        "MODIFY_NIC_VPORT_CONTEXT": 0x755,
        "CREATE_SCHEDULING_ELEMENT": 0x782,
        "MODIFY_SCHEDULING_ELEMENT": 0x785,
        "SET_FLOW_TABLE_ROOT": 0x92F,
        "CREATE_FLOW_TABLE": 0x930,
        "DESTROY_FLOW_TABLE": 0x931,
        "CREATE_FLOW_GROUP": 0x933,
        "DESTROY_FLOW_GROUP": 0x934,
        "SET_FLOW_TABLE_ENTRY": 0x936,
        "DELETE_FLOW_TABLE_ENTRY": 0x938,
    },
    "infiniband": {"MODIFY_HCA_VPORT_CONTEXT": 0x763},
}
# What makes an object and what ends it, each with the beginning of such an object's line.
CREATE = {0x782: "0 roots ", 0x930: "0 table ", 0x933: "0 group ", 0x936: "0 entry "}
END = {0x783: "0 roots ", 0x931: "0 table ", 0x934: "0 group ", 0x938: "0 entry "}
GUID, ENTRIES = re.compile(" guid [0-9a-f]+"), re.compile(" (in|e)gress -?[0-9]+")
# Any command of VF 0, whose driver is rebound and whose devices move.
ANY = "any"
# The driver gives a command up after command_ms and five seconds (MLX5_CMD_TIMEOUT_RECOVER_MSEC of cmd.c).
_SHORT = "mlx5chip.command_ms=300 mlx5chip.fault_late_ms=6000"
# An ordinary run takes one of them.
IMPATIENT = [
    pytest.param(replace(nic, kernel=f"{nic.kernel} {_SHORT}"), id=nic.name, marks=pytest.mark.other_nic)
    for nic in (MLX5, INFINIBAND)
]
# How many faults one boot of the lab takes at most, and how long each may last.
A_BOOT, FAULT_S = 8, 120
BREAK = """
# What differs is judged below.
compare_firmware() { :; }
vport() { sed '1!d; s/ guid [0-9a-f]*//' $chip/vports; }
text() { jq -c '[.code, .msg, .details]' /tmp/answer; }
sent() { [ $1 = any ] && cut -d' ' -f 3 $chip/fault || cat /sys/kernel/debug/mlx5/0000:3b:00.0/commands/$1/n; }
# count CALL: how many commands of each name are in a call that nothing breaks
count() {
  echo "none 0 0 0" >$chip/fault
  for name in $names; do sent $name >/tmp/$1.$name; done; call $1 pod
  for name in $names; do echo $(($(sent $name) - $(cat /tmp/$1.$name))) >/tmp/$1.$name; done
}
# The answer of a call with a broken command. An ADD that succeeds has applied everything.
answer() {
  if [ $status != 0 ]; then text; elif [ $1 = DEL ] || [ "$(vport)" = "$given" ]; then echo 0; else vport; fi
}
# Only the first ADD puts a PF's VFs into rate scheduling, where they stay (esw_qos_vport_enable of esw/qos.c).
new_vfs() {
  for vfs in 0 4; do echo $vfs >$functions/0000:3b:00.0/sriov_numvfs; done
  as_init_leaves_them 0 1; prepared
}
# A VF's driver takes a netdev's old address from its tables later, after a command without an answer
# (mlx5e_set_rx_mode_work of en_main.c).
same_soon() {
  for turn in $(seq 60); do same >/tmp/same; [ "$(cat /tmp/same)" != same ] || break; sleep 0.5; done; cat /tmp/same
}
# broken CALL KIND PERMILLE NAME [OPCODE FUNCTION]: break the command that lies so far into the call
broken() {
  echo breaking $*; commands=$(cat /tmp/$1.$4)
  [ $4 != CREATE_SCHEDULING_ELEMENT ] || new_vfs
  [ $1 = ADD ] || add >/dev/null
  echo "$2 $((1 + commands * $3 / 1000)) ${5:-0} ${6:-0}" >$chip/fault; call $1 pod
  echo $(cut -d' ' -f 5 $chip/fault) $(answer $1); echo none >$chip/fault
  for turn in 1 2 3; do call DEL pod; [ $status != 0 ] || break; done
  if [ $status = 0 ]; then same_soon; else echo kept $(text) $(ls /var/lib/mooring/vfs); fi
  # firmware.sh would take a scheduling element that stays for the root.
  [ $status = 0 ] && [ $4 != CREATE_SCHEDULING_ELEMENT ] && cmp -s /tmp/before /tmp/now || exit 0
  # A slot that VF 0's driver lost without an answer may hang its next unbind.
  case $2.$4 in unanswered*.any | late.any) exit 0 ;; esac
}
count ADD; given=$(vport); count DEL; same
"""


class Fault(NamedTuple):
    """What happens to one of a call's commands: the one so far into those of its name."""

    call: str
    kind: str
    permille: int
    name: str


def faults_of(random: Random, names: Sequence[str]) -> list[Fault]:
    """Return each kind of fault of each command in each call that sends it: an ADD creates objects, a DEL ends them."""
    calls = {"CREATE": ("ADD",), "SET_FLOW_TABLE_ROOT": ("ADD",), "DESTROY": ("DEL",)}
    return [
        Fault(call, kind, random.randrange(1000), name)
        for name in names
        for call in next((calls[start] for start in calls if name.startswith(start)), ("ADD", "DEL"))
        for kind in KINDS
    ]


def break_some(lab: Lab, nic: Nic, mode: str, faults: Sequence[Fault]) -> list[list[str]]:
    """Break commands in one boot, until something stays; return for each fault the lines of its outcome.

    A boot that hangs fails, with the fault and the end of the console.
    """
    opcodes = SETTINGS[nic.link]
    script = f"names='{' '.join({fault.name for fault in faults})}'\n{BREAK}"
    for fault in faults:
        script += f"broken {' '.join(map(str, fault))} {f'{opcodes[fault.name]:#x} -1' if fault.name != ANY else ''}\n"
    vfs = (nic.vf(0, **nic.wishes), second(nic))
    lines = run(with_nic(lab, nic), script, *vfs, mode=mode, timeout_s=60 + FAULT_S * len(faults))
    first, *outcomes = "\n".join(lines).split("breaking ")
    assert first.strip() == "same", f"without a fault: {lines}"
    assert outcomes, f"{faults[0]}: the boot printed no outcome"
    return [outcome.splitlines()[1:] for outcome in outcomes]


def assert_promise_is_kept(fault: Fault, pci: str, outcome: Sequence[str]) -> None:
    assert len(outcome) > 1, f"{fault} has no outcome: {outcome}"
    opcode, _, answer = outcome[0].partition(" ")
    is_right = answer == "0" or answer.startswith("[") or int(opcode, 16) in END
    assert is_right, f"{fault} leaves other settings: {outcome}"
    if outcome[1] == "different":
        assert differs_beyond_the_driver(int(opcode, 16), fault.kind, outcome[2:]), f"{fault}: {outcome}"
    elif outcome[1] != "same":
        # A command without an answer keeps its slot, and so does a late one while the driver polls (poll_timeout,
        # mlx5_cmd_comp_handler of cmd.c). Probe and unbind wait for all slots (mlx5_cmd_change_mod), for ever: the
        # plugin keeps the VF, and the lab is booted again.
        assert not fault.kind.startswith("refused"), f"{fault}: {outcome}"
        assert f"the driver of vf {pci} cannot be rebound" in outcome[1], f"{fault}: {outcome}"
        assert outcome[1].endswith(f"{pci}.json"), f"{fault}: {outcome}"


def differs_beyond_the_driver(opcode: int, kind: str, lines: Sequence[str]) -> bool:
    """Return whether the lines of `diff` show only what the driver ignores or cannot know.

    It ignores that a node GUID could not be written (mlx5_esw_set_vport_mac_locked of eswitch.c), which the next write
    of the MAC does again, and that an entry, group or table could not be deleted (del_hw_fte, del_hw_flow_group,
    del_hw_flow_table of fs_core.c). It does not know the number of an object whose creation failed after its effect.
    """
    is_of_nic = opcode == SETTINGS["ethernet"]["MODIFY_NIC_VPORT_CONTEXT"]
    follows = GUID if is_of_nic else ENTRIES
    before, now = (Counter(follows.sub("", line[2:]) for line in lines if line.startswith(sign)) for sign in "<>")
    gone, new = before - now, now - before
    may_stay = (END if kind in ("refused", "unanswered") else CREATE).get(opcode)
    is_left = may_stay and gone.total() <= new.total() == 1 and all(line.startswith(may_stay) for line in gone | new)
    return bool(is_left) or (is_of_nic and not gone and not new)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("mode", ["exclusive", "shared"])
@pytest.mark.parametrize("nic", IMPATIENT)
def test_a_broken_firmware_command_leaves_nothing(lab: Lab, part: Part, nic: Nic, mode: str) -> None:
    """After an ADD or DEL with a broken command, a later DEL leaves all as it was, or keeps the VF and says why.

    In shared mode the PF gets the same commands. VF 0 gets others, as its RDMA device does not move (an ADD sends 126
    instead of 145 on Ethernet, 578 instead of 821 on InfiniBand): only these are broken there.
    """
    random = part.random(f"firmware {nic} {mode}")
    faults = faults_of(random, [ANY, *SETTINGS[nic.link]] if mode == "exclusive" else [ANY])
    if not part.whole:
        faults = random.sample(faults, 2)
    broken = set()
    while faults:
        for fault, outcome in zip(faults[:A_BOOT], break_some(lab, nic, mode, faults[:A_BOOT]), strict=False):
            print(fault, outcome)
            assert_promise_is_kept(fault, nic.vf(0)["pci"], outcome)
            # A call that made fewer commands than the one that was counted may not have come to its broken one.
            broken |= set() if outcome[0].startswith("0x0 ") else {fault.name}
            faults.remove(fault)
    assert broken, "no command was broken"
    if part.whole and mode == "exclusive":
        assert broken == {ANY, *SETTINGS[nic.link]}
