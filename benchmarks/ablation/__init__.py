"""What each change of a distillation is worth; see `benchmarks/ablation/__main__.py`."""
