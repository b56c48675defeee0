"""The command `edgekit search`."""
