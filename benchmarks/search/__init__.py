"""How much of the whole front the samplers of `edgekit search` find: a table of real trainings, and the comparison."""
