"""Hand the socket over to a new shim: both sides, their messages, and the calls that the old shim still finishes."""
