"""What the device is: processor, memory, versions, temperature, and whether it is emulated."""
