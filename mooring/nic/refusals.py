"""Errors with which PF drivers reject a setting, by the kernel's names."""

import errno

# ENOTSUPP of include/linux/errno.h, which C libraries lack. bnxt_en returns it if its firmware is too old for a VLAN or
# for spoof check (bnxt_set_vf_vlan, bnxt_set_vf_spoofchk).
ENOTSUPP = 524
# Errors that mean that a setting does not exist: the kernel's for an operation that a driver lacks, mlx4's for a device
# without the capability (mlx4_set_vf_rate without MLX4_DEV_CAP_FLAG2_QOS_VPP), and bnxt_en's for old firmware.
NO_SUCH_SETTING = frozenset({errno.EOPNOTSUPP, errno.EPROTONOSUPPORT, ENOTSUPP})
# Python has ENOTSUP, which the kernel lacks, as another name for EOPNOTSUPP.
_NAMES: dict[int, str] = {**errno.errorcode, errno.EOPNOTSUPP: "EOPNOTSUPP", ENOTSUPP: "ENOTSUPP"}


def errno_name(error: OSError) -> str:
    """Return the kernel's name of an error, its number if it has no name."""
    return _NAMES.get(error.errno or 0, str(error.errno))


def symbol(error: OSError) -> str:
    """Return name and meaning of an error: "EOPNOTSUPP (Operation not supported)"."""
    meaning = "the NIC has no such setting" if error.errno == ENOTSUPP else error.strerror
    return f"{errno_name(error)} ({meaning})"
