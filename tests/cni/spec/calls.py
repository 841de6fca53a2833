"""What calls of the CNI share."""

from typing import Any

FIRST = {"pf": "enp4s0f0", "vf": 1, "pci": "0000:04:00.3", "min_tx_rate": 15000, "max_tx_rate": 20000, "vlan": 7}


SECOND = {"pf": "enp4s0f1", "vf": 0, "pci": "0000:04:00.6", "name": "rdma7", "mac": "02:00:00:00:00:77"}


def previous(host: Any, result: dict[str, Any]) -> dict[str, Any]:
    """Return a call's result as a runtime hands it to the next call."""
    return {name: value for name, value in result.items() if name != "status"}


def in_pod(host: Any, *command: str) -> None:
    done = host.enter("ip", "-n", host.pod, *command)
    assert done.returncode == 0, done.stderr


def drift(host: Any, conf: dict[str, Any]) -> str:
    """Return what CHECK names; it must name something."""
    answer = host.call("CHECK", conf)
    assert (answer["status"], answer["code"]) == (1, 103), answer
    return str(answer["details"])
