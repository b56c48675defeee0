"""The device's hardware: processor, memory, versions, temperature, and whether it is emulated."""
