"""What `mooring-advertiser init` does to the host: VFs, their settings and drivers, the RDMA stack's mode, progress.

The only room that changes the host; how many VFs and which settings is decided in `inventory/init_plan.py`.
"""
