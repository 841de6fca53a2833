"""Attach the VFs of an ADD: set them, give them a GUID if requested, move them into the pod, and add addresses."""
