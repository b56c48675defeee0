"""`edgekit fleet`: bundles brought to many devices over SSH, in waves, with a note of how far each is."""
