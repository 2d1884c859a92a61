"""Pull, verify and build cache images: references, registries, signatures, the cache format, extraction.

May know gkm.api and gkm.hoststate; must never know Kubernetes, GPUs of this machine or mounts. Every response of a
registry is hostile until its digest, its type and its bounds are checked.
"""
