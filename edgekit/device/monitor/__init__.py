"""Monitoring of a model in use: metrics, drift, and samples to keep for the workstation.

Everything is off by default. See `edgekit/runner/observers.py` for how a model notifies its observers.
"""
