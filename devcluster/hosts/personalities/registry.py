"""The personalities by name; a PF that names none has mlx5's of its link."""

from devcluster.hosts.personalities.bnxt import Bnxt
from devcluster.hosts.personalities.hns3 import Hns3
from devcluster.hosts.personalities.i40e import I40e
from devcluster.hosts.personalities.ice import Ice
from devcluster.hosts.personalities.ionic import Ionic
from devcluster.hosts.personalities.mlx4 import Mlx4
from devcluster.hosts.personalities.mlx4_infiniband import Mlx4Infiniband
from devcluster.hosts.personalities.mlx5_bluefield import Mlx5Bluefield
from devcluster.hosts.personalities.mlx5_ethernet import Mlx5Ethernet
from devcluster.hosts.personalities.mlx5_infiniband import Mlx5Infiniband
from devcluster.hosts.personalities.personality import Personality

_PERSONALITIES: tuple[Personality, ...] = (
    Mlx5Ethernet(),
    Mlx5Infiniband(),
    Mlx5Bluefield(),
    Bnxt(),
    Ice(),
    I40e(),
    Mlx4(),
    Mlx4Infiniband(),
    Hns3(),
    Ionic(),
)
PERSONALITIES = {each.name: each for each in _PERSONALITIES}
