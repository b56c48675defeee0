"""The stages of the walk, one module or folder each; they never import one another."""
