"""The baseline of a finished run, compressed by other toolkits as they do it by themselves."""
