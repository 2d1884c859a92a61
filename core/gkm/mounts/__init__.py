"""Mounting caches by syscall: overlay, openat2, mountinfo; and the files of a cache that name where it is mounted.

Standard library only. May know directories, mount flags and the formats of those files; must never know pods or gRPC.
"""
