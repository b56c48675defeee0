"""`edgekit search`: options, and the study from its config to its front."""
