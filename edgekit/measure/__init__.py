"""Latency on this machine: networks timed in turns, forecasts held against them, and bundles under load."""
