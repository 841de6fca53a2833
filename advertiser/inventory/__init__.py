"""What a host offers: its facts as read, the offer, and the rules that make an inventory or a plan of `init` of them.

Pure: values in, values out. Nothing here reads a file, asks the kernel or knows the API server.
"""
