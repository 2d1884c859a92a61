"""The kind Node, decoded in one form that all controllers share."""

from gkm.kube.resources import BY_ADMINISTRATORS, Resource
from gkm.topology.nodes import Node

NODES = Resource("v1", "Node", "nodes", namespaced=False, type=Node, unbounded=BY_ADMINISTRATORS)
