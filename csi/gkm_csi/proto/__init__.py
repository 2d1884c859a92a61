"""The messages of CSI v1 and of kubelet's plugin registration, generated from the .proto files.

`python scripts/generate.py` writes the modules, without *_pb2_grpc: gkm_csi.server.grpc_server makes its handlers from
the descriptors (2 MiB less, measured).
"""
