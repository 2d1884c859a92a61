"""The CSI driver csi.gkm.io: mounts caches into pods and records which pod uses which cache.

May import only grpcio, protobuf, the standard library, gkm.hoststate, gkm.mounts and gkm.runtimes, to save memory.
"""
