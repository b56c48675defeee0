"""Search: which options of a config lead to which accuracy, latency and bytes."""
