"""The commands `edgekit field …` for what devices send back: kept samples and field reports."""
