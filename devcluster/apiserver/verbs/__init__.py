"""What a request does: create, update, patch, delete, and the subresources."""
