"""Training: one loop, its losses and teachers, its checkpoints, and how a network is evaluated."""
