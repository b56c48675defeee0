"""Latencies on the device: rounds in turns, intervals, and what else went on meanwhile."""
