"""Training by shares: a batch is divided into S shares, and its gradient is the sum of theirs, in their order.

Who computes which share changes no bit: one process computes them one after the other, P processes S/P each.
Process 0 has the data, the optimiser and the checkpoints. The others get weights and samples and give gradients.
"""
