"""The kind Node, in the one form in which all controllers read it."""

from gkm.kube.resources import BY_ADMINISTRATORS, Resource
from gkm.topology.nodes import Node

NODES = Resource("v1", "Node", "nodes", namespaced=False, type=Node, unbounded=BY_ADMINISTRATORS)
