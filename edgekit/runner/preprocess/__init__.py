"""Preprocess: the declared steps between a raw sample and the model's input. `steps` needs no NumPy."""
