"""Groups of pods: the decision under way, the messages for its members, and their way to the Binds."""
