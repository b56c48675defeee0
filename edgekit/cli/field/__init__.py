"""`edgekit field`: what devices bring back to the desk, kept samples and field reports."""
