"""Changes of the rates of running pods."""
