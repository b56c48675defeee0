"""The experiments. Each module has `TITLE` and `measure(plan)`, which returns a Finding."""
