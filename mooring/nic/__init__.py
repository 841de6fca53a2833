"""What the kernel keeps of a NIC's VFs: addresses, settings on their PF, RDMA devices."""
