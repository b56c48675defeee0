"""`edgekit fleet`: send bundles to many devices over SSH, install them in waves, and record each device's state."""
