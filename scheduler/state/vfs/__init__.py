"""VFs of running pods that are claimed twice or lost by their node, and pods that never started."""
