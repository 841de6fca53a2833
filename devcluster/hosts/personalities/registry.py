"""The personalities by name; a PF that names none has mlx5's of its link."""

from devcluster.hosts.personalities.mlx5_ethernet import Mlx5Ethernet
from devcluster.hosts.personalities.mlx5_infiniband import Mlx5Infiniband
from devcluster.hosts.personalities.personality import Personality

_PERSONALITIES: tuple[Personality, ...] = (Mlx5Ethernet(), Mlx5Infiniband())
PERSONALITIES = {each.name: each for each in _PERSONALITIES}
