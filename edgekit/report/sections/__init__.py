"""One module a topic: its rows, its table for a notebook, its table and figure for the page, and its sentence."""
