"""Detectors of other packages: the boxes of their bundles against those that the packages find themselves."""
