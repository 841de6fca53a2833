"""What a PF's driver answers to a setting that it refuses: errors by the kernel's own names."""

import errno

# ENOTSUPP of include/linux/errno.h, which no C library has: bnxt_en's answer for a VLAN or a spoof check that its
# firmware is too old for (bnxt_set_vf_vlan, bnxt_set_vf_spoofchk).
ENOTSUPP = 524
# The kernel's answer for an operation that a driver lacks; mlx4's for a device without the capability (mlx4_set_vf_rate
# without MLX4_DEV_CAP_FLAG2_QOS_VPP); bnxt_en's for old firmware.
NO_SUCH_SETTING = frozenset({errno.EOPNOTSUPP, errno.EPROTONOSUPPORT, ENOTSUPP})
# Python has ENOTSUP, which the kernel lacks, as another name for EOPNOTSUPP.
_NAMES: dict[int, str] = {**errno.errorcode, errno.EOPNOTSUPP: "EOPNOTSUPP", ENOTSUPP: "ENOTSUPP"}


def errno_name(refused: OSError) -> str:
    """Return the kernel's name for an error, its number where it has none."""
    return _NAMES.get(refused.errno or 0, str(refused.errno))


def symbol(refused: OSError) -> str:
    """Return the name of an error and what it means: "EOPNOTSUPP (Operation not supported)"."""
    meaning = "the NIC has no such setting" if refused.errno == ENOTSUPP else refused.strerror
    return f"{errno_name(refused)} ({meaning})"
