"""Present a run: result.json, the HTML page, tables and figures for notebooks, terminal output, and MLflow.

`sections/` has one module for each topic. `tables.py`, `figures.py`, `html/` and `console.py` display the results of
these modules.
"""
