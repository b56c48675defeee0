"""How early the monitor finds a drift, and how often it finds one that is not there: `python -m benchmarks.drift`."""
