"""The model server: the Open Inference Protocol v2 over HTTP and gRPC, queues with deadlines, and worker processes.

It is part of `edgerun.pyz` as well, and needs the packages of the extra `serve`.
"""
