"""Data sources, one module each. The module's name is the value of `data.source` in a config."""
