"""Forward CRI calls to the runtime as bytes; those that a tenant can make many or large are bounded."""
