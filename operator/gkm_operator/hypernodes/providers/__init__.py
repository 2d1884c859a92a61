"""Topology providers: the process that runs one provider, and the check of its events.

The controllers import `intake` only, never the code of a provider. `command` and what it imports run in the pod of a
provider.
"""
