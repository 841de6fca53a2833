"""The messages of core/v1 in which Bindings are written: generated from protos/ by `protos/generate`, never edited."""
