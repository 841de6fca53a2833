"""Forward CRI calls to the runtime as bytes, with limits for calls that tenants can make numerous or large."""
