"""VFs of running pods: claimed twice, lost by their node, or of a pod that never started."""
