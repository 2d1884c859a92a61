"""Mount caches by syscall: overlay, openat2, mountinfo; and rewrite the files of a cache that contain its mount path.

Standard library and gkm.hoststate only. May know directories, mount flags and the formats of those files; must never
know pods or gRPC.
"""
