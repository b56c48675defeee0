"""Data sources, one module each; the module's name is the key in a config."""
