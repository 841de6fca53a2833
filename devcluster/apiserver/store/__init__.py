"""Objects as they are kept: revisions, lists, selectors, watchers."""
