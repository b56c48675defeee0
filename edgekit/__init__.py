"""edgekit: take a trained model to a Raspberry Pi or an Intel edge box, small, fast and provably right."""

__version__ = "0.1.0"
