"""The page of counters: names as the SR-IOV metrics exporter has them, units, labels that cannot break out."""

from prometheus_client.parser import text_string_to_metric_families

from cni.plan.vf_counters import FAMILIES, FROM_NETDEV, FROM_PF, HeldVf, VfCounters, labels_of, page

VF = HeldVf("ns/p", "net1", "rail0", "enp4s0f0", 3, "0000:04:00.5", "1")
OWN = {"pod": "p", "namespace": "ns", "interface": "net1", "network": "rail0"}
EXPORTERS = {"pf": "enp4s0f0", "vf": "3", "pciAddr": "0000:04:00.5", "numa_node": "1"}


def samples(*vfs: tuple[HeldVf, VfCounters]) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(page(vfs)):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_what_the_pf_counts_has_the_exporters_names_and_labels_beside_the_pods() -> None:
    """sriov_vf_tx_bytes by pf, vf, pciAddr and numa_node; one sriov_kubepoddevice a VF to join with."""
    found = samples((VF, VfCounters(pf={"tx_bytes": 7, "rx_broadcast": 2})))
    assert found["sriov_vf_tx_bytes"] == [(OWN | EXPORTERS, 7)]
    assert found["sriov_vf_rx_broadcast"] == [(OWN | EXPORTERS, 2)]
    assert found["sriov_kubepoddevice"] == [(OWN | EXPORTERS | {"dev_type": "rdma-sriov/vf", "container": ""}, 1)]


def test_data_of_a_port_is_in_bytes() -> None:
    """The kernel counts units of four octets."""
    port = {"port_xmit_data": 250, "port_rcv_data": 1, "port_xmit_packets": 9, "port_xmit_wait": 4}
    found = samples((VF, VfCounters(ports={"1": port})))
    labels = OWN | EXPORTERS | {"port": "1"}
    assert found["mooring_vf_rdma_tx_bytes_total"] == [(labels, 1000)]
    assert found["mooring_vf_rdma_rx_bytes_total"] == [(labels, 4)]
    assert found["mooring_vf_rdma_tx_packets_total"] == [(labels, 9)]
    assert found["mooring_vf_rdma_port_counter"] == [(labels | {"counter": "port_xmit_wait"}, 4)]


def test_netdev_and_hardware_counters_stand_beside_each_other() -> None:
    """Those of the driver under their own names, as a label."""
    found = samples((VF, VfCounters(netdev={"tx_dropped": 3}, hardware={"2": {"out_of_sequence": 5}})))
    assert found["mooring_vf_netdev_tx_dropped_total"] == [(OWN | EXPORTERS, 3)]
    labels = OWN | EXPORTERS | {"port": "2", "counter": "out_of_sequence"}
    assert found["mooring_vf_rdma_hw_counter"] == [(labels, 5)]


def test_a_name_with_any_characters_stays_in_its_label() -> None:
    """A pod record's name is a text of the API server's, and is written as one all the same."""
    name = 'a"} 1\nmooring_evil{x="\\'
    found = samples((HeldVf(f"ns/{name}", "net1", "", "p", 0, "0000:04:00.2"), VfCounters()))
    assert list(found) == ["sriov_kubepoddevice"]
    assert found["sriov_kubepoddevice"][0][0]["pod"] == name


def test_every_sample_is_of_a_declared_family_with_all_of_its_labels() -> None:
    """What the dashboard's test relies on."""
    whole = VfCounters(
        dict.fromkeys(FROM_PF, 1),
        dict.fromkeys(FROM_NETDEV, 1),
        {"1": dict.fromkeys(("port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets", "x"), 1)},
        {"1": {"y": 1}},
    )
    found = samples((VF, whole), (VF, VfCounters()))
    assert {name: set(labels_of(family)) for name, family in FAMILIES.items()} == {
        name: set(values[0][0]) for name, values in found.items()
    }
