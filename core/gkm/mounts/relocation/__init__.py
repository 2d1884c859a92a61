"""Rewrite files of a cache that contain absolute paths, so that they fit the path where a container mounts the cache.

Standard library, gkm.hoststate, gkm.mounts and gkm.runtimes only. The content comes from images and is not trusted.
"""
