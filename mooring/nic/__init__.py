"""Read and set what the kernel stores about a NIC's VFs: addresses, settings on their PF, RDMA devices."""
