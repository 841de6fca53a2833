"""Attach the VFs of an ADD: moved into the pod, with a GUID of their own where one is wanted, and addressed."""
