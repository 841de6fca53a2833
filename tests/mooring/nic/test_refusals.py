"""Errors of PF drivers by the kernel's names, which are not all in Python's table."""

import errno
import os

from mooring.nic.refusals import NO_SUCH_SETTING, errno_name, symbol


def test_bnxts_answer_for_old_firmware_is_that_there_is_no_such_setting() -> None:
    """bnxt_set_vf_vlan and bnxt_set_vf_spoofchk return ENOTSUPP, 524, of which the C library knows nothing."""
    refused = OSError(524, os.strerror(524))
    assert refused.errno in NO_SUCH_SETTING
    assert symbol(refused) == "ENOTSUPP (the NIC has no such setting)"


def test_an_operation_that_a_driver_lacks_has_the_kernels_name() -> None:
    """Python calls it ENOTSUP, which the kernel does not have."""
    refused = OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    assert symbol(refused) == "EOPNOTSUPP (Operation not supported)"


def test_an_error_without_a_name_is_its_number() -> None:
    """Such as one of a driver out of the kernel's tree."""
    assert errno_name(OSError(9999, "?")) == "9999"
