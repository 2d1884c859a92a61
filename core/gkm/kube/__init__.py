"""Clients of the Kubernetes API: requests, watches, work queues, events and leases.

May import gkm.api and gkm.hoststate; must never know the purpose of a cache.
"""
