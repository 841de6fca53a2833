"""What the kernel counts for a VF: on its PF, on its netdev and on its RDMA device."""
