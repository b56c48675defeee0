"""Latency on this machine: timing networks in turn, comparing forecasts with measurements, and load tests."""
