"""A model that is watched while it works: metrics, whether it is still right, and what to keep for the desk.

All of it is off until it is asked for. `edgekit/runner/observers.py` says how a model tells of its answers.
"""
