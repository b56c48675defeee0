"""The TFLite target: convert networks, and read the operators, inner tensors and operator times of the files."""
