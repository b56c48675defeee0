"""How fast trainings are; see `benchmarks/training/__main__.py`."""
