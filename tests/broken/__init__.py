"""Networks that are broken in the ways in which users' networks are."""
