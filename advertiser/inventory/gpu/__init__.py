"""Derive the inventory of a host's GPUs from facts of files and libraries.

Pure: values in, values out. Reads no files and calls no libraries.
"""
