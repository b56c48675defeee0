"""The commands `edgekit field …` for the kept samples and field reports that devices send back."""
