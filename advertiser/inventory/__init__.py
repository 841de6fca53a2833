"""What a host offers: its facts as read, the offer, and the rules that derive an inventory or a plan of `init`.

Pure: values in, values out. Nothing here reads a file, calls the kernel or depends on the API server.
"""
