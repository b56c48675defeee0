"""How a run is shown: result.json, report.html, tables, plots, the console's words, MLflow."""
