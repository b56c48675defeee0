"""Commands of `edgerun` that look after a device: one file each, as in `edgekit.runner.commands`."""
