"""Groups of pods: the decision in progress, the messages for its members, and their way to the Binds."""
