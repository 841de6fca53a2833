"""Rules about a pod's volumes."""
