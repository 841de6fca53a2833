"""What mlx5_core makes of min_tx_rate: weights among the VFs that were given rates.

Source: drivers/net/ethernet/mellanox/mlx5/core/esw/qos.c of Linux 6.12, in legacy mode, where all VFs are in one group
(esw->qos.group0, whose own bw_share is 0). The firmware schedules by these weights; what it gives to a VF without an
element, no source tells. In Linux 7.2 the weights are the same (esw_qos_calc_bw_share); what the firmware refuses is
stored there (esw_qos_set_node_min_rate).
"""

from collections.abc import Mapping

# MLX5_CAP_QOS(dev, max_tsar_bw_share): the firmware's, which no tool shows. 100 is an assumption, not a finding.
MAX_TSAR_BW_SHARE = 100
_MIN_BW_SHARE = 1


def min_rate_divider(mins: Mapping[int, int], max_bw_share: int = MAX_TSAR_BW_SHARE) -> int:
    """Return the divider for the VFs' min rates in Mb/s, 0 where none has one (esw_qos_calculate_min_rate_divider)."""
    largest = max(mins.values(), default=0)
    return max(largest // max_bw_share, 1) if largest else 0


def bw_share(min_mbps: int, divider: int, max_bw_share: int = MAX_TSAR_BW_SHARE) -> int:
    """Return a VF's weight (esw_qos_calc_bw_share and MLX5_RATE_TO_BW_SHARE): rounded up, at least 1, capped."""
    return min(max(-(-min_mbps // divider), _MIN_BW_SHARE), max_bw_share) if divider else 0


def bw_shares(mins: Mapping[int, int], max_bw_share: int = MAX_TSAR_BW_SHARE) -> dict[int, int]:
    """Return the weight of each VF that takes part (esw_qos_normalize_vports_min_rate), by its min rate in Mb/s."""
    divider = min_rate_divider(mins, max_bw_share)
    return {vf: bw_share(low, divider, max_bw_share) for vf, low in mins.items()}
