"""Latencies on the device: interleaved rounds, intervals, and other activity on the machine."""
