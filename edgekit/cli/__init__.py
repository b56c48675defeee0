"""The command `edgekit`, with a module for each command or group of commands."""
