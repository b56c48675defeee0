"""The workstation's side of many devices: connections over SSH, rollouts in waves, and signatures."""
