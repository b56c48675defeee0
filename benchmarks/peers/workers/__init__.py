"""What runs in the peers' own environments: numpy and the peer's own libraries, nothing of edgekit."""
