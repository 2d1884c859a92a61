"""Topology providers: the process that runs one provider, its channel to the ProviderTree, and the built-in ones.

The controllers never import it: `command` and what it imports run in the pod of a provider.
"""
