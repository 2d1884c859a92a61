"""The CSI driver csi.gkm.io: mounts caches into pods and records who uses what.

May import grpcio, protobuf, the standard library, gkm.hoststate and gkm.mounts: nothing else, it counts every MiB.
"""
