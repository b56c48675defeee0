"""Distillation losses: one file each, the file's name is its key, the function is `loss`."""
