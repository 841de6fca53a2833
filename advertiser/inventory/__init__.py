"""Derive an inventory, or a plan for `init`, from a host's facts and the operator's offer.

Pure: values in, values out. Reads no files, calls no kernel, and does not use the API server.
"""
