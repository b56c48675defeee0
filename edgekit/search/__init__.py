"""Search the options of a config for trials with a high accuracy, a low latency and a small size."""
