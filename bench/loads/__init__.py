"""What is measured with: nodes, pods, volumes, instances of placement, CRI calls."""
