"""The speed of training, see `benchmarks/training/__main__.py`."""
