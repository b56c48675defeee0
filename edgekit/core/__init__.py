"""The code that all layers of the workstation share: errors, config, artifacts, keys, locks, child processes, tasks."""
