"""How a run is shown: result.json, the page, notebooks' tables and figures, the console's words, MLflow.

`sections/` has one module a topic. `tables.py`, `figures.py`, `html/` and `console.py` show what these return.
"""
