"""Sources of frames, with real streams on loopback."""
