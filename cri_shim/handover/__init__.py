"""One shim takes the socket over from another: both sides, what they say to each other, and the calls that are left."""
