"""Rules about a node's own properties: its name, labels, taints and images."""
