"""The flags of each command, their values, and how a shell completes them."""
