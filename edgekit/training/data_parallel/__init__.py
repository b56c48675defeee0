"""Data-parallel training: a batch is divided into S shards, and its gradient is the sum of theirs, in a fixed order.

The result does not depend on the number of processes: one process computes all shards one after the other, and P
processes compute S/P each. Process 0 has the data, the optimizer and the checkpoints; the others receive weights and
samples and return gradients.
"""
