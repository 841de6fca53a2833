"""What a measurement needs of a host: the lab, a systemd of its own, users of RDMA devices."""
