"""What the scheduler reads at its start: installed constraints, its signing key, the admission policies.

`scheduler.__main__` reads each and passes it to the loop or the machine; only the policies are read again later.
"""
