"""Locations and GPUs of nodes, from Node and Pod objects. Nodes with contradictory labels are quarantined.

May import gkm.api and gkm.hoststate.escaping; must never read a file, a clock or the network, and never know the
purpose of a plan.
"""
