"""Groups of pods that are scheduled together: the sources read into one `Group`, and the members of each by uid."""
