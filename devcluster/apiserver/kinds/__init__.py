"""The kinds of objects, and what a real server does to each."""
