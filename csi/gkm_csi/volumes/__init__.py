"""Volumes on this node: parse a request, publish, unpublish, capture and repair; records on disk, mounts in the kernel.

Must never know gRPC's transport, only the messages of CSI.
"""
