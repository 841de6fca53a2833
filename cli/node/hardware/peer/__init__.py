"""A test between two hosts: one lends VFs (`lend`), the other sends to them (`remote`), over `channel`."""
