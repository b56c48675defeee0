"""Tests of `edgekit.data`; a package, so that its test files may be named as those of other folders."""
