"""Groups of pods: the decision under way, what its members are told, and their way to the Binds."""
