"""Data-parallel training: a batch is divided into S shards, and the gradients of the shards are added up.

They are added in a fixed order, so the result does not depend on the number of processes: a single process computes all
shards one after the other, and P processes compute S/P shards each. Process 0 has the data, the optimizer and the
checkpoints. The others receive weights and samples, and return gradients.
"""
