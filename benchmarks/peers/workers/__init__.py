"""Workers that run in the toolkits' own environments, with NumPy and the toolkit's libraries but without edgekit."""
