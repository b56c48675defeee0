"""Show each topic of a run. Each module has the rows, tables, figures and sentences of one topic."""
