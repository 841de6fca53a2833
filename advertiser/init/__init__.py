"""`mooring-advertiser init`: create VFs, set them, bind their drivers, set the RDMA mode, and show progress.

No other package changes the host. `inventory/init_plan.py` decides how many VFs to create and which settings to write.
"""
