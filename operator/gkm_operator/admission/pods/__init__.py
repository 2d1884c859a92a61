"""Pods that name a cache by a label get volume, mounts, environment, affinity, and a report about them.

Must never refuse a pod, and never change what its author wrote.
"""
