"""The `edgekit` command, a file for each group of its subcommands."""
