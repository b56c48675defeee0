"""Find out where a converted model begins to differ from its network."""
