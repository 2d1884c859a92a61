"""The messages of CSI v1 and of kubelet's plugin registration that this driver speaks, generated from the .proto files.

`python scripts/generate.py` writes the modules; there are no *_pb2_grpc ones, gkm_csi.server makes its handlers from
the descriptors (2 MiB less, prior measurement).
"""
