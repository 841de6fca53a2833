"""What the scheduler finds at its start: installed constraints, its signing key, the admission policies.

Each is read by `scheduler.__main__` and handed to the loop or the machine; only the policies are read again later.
"""
