"""Read the kernel's counters of a VF: those of its PF, its netdev and its RDMA device."""
