"""The forms in which objects come and go: protobuf, tables, discovery."""
