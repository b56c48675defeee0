"""What every floor of the workbook shares: errors, config, sealed artifacts, keys, locks, child processes, tasks."""
