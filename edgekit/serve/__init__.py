"""Bundles behind a socket: the Open Inference Protocol v2, a queue that knows its deadlines, worker processes.

Uses `edgekit.runner` alone, so that `edgerun.pyz serve` carries it. Needs the packages of the extra `serve`.
"""
