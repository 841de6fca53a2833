"""How an answer is printed: tables, JSON, YAML, names, or a JSONPath template, and in which order."""
