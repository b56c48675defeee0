"""Where a converted model begins to differ from its network."""
