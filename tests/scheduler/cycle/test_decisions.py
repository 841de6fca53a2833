"""Why a pod fits on no node."""

from scheduler.cycle.decisions import for_member, no_node_available


def test_a_reason_against_all_nodes_can_name_the_member_that_it_is_about() -> None:
    """Another reason stays as it is."""
    reason = no_node_available(3, "3 Insufficient cpu")
    assert for_member(reason, 2) == "0/3 nodes are available for the 2nd member: 3 Insufficient cpu."
    assert for_member("its claim is lost", 2) == "its claim is lost"
