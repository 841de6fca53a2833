"""Traffic between VFs in pods of the test: RDMA by perftest, and single frames for what isolates VFs."""
