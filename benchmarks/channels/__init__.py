"""Channels by ratio, by time and from new weights; see `benchmarks/channels/__main__.py`."""
