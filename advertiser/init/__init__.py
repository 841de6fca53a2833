"""What `mooring-advertiser init` does to the host: VFs, their settings and drivers, the RDMA stack's mode, progress.

The only package that changes the host; `inventory/init_plan.py` decides how many VFs and which settings.
"""
