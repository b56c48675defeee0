"""The desk's side of trust: policies are made and changed, bundles signed. Verifying is the runner's own code."""
