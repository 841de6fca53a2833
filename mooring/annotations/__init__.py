"""Documents in annotations of pods and nodes: request, group, inventory, assignment, rates, and their signatures."""
