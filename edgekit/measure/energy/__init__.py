"""Energy of a piece of work: from the processor's own counters, or from a file that a power meter writes."""
