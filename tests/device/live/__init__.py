"""The parts of `edgerun live`."""
