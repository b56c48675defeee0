"""Commands of `edgerun` that manage a device: one file each, as in `edgekit.runner.commands`."""
