"""From what a host's files and libraries say of its GPUs to the inventory; pure."""
