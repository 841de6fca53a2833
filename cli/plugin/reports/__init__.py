"""What `kubectl mooring` shows of a cluster: from API objects to tables, findings and explanations.

Pure: values in, tables out. Nothing here reads from the API server or prints.
"""
