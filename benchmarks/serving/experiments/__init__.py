"""The experiments. Each module has `TITLE` and `measure(plan)`, which returns an `ExperimentResult`."""
