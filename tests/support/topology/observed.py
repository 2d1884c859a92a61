"""What agents report of nodes, as the controllers show it to built-in providers."""

import base64
import gzip
import json

from gkm_operator.hypernodes.providers.view import AgentReport


def packed(text: bytes) -> bytes:
    """Return the output of ibnetdiscover as it stands in a ConfigMap."""
    return base64.b64encode(gzip.compress(text, mtime=0))


def survey(node: str, text: bytes) -> AgentReport:
    """Return the survey of a node."""
    return AgentReport("Survey", node, packed(text))


def ports(node: str, *guids: str) -> AgentReport:
    """Return the InfiniBand ports of a node."""
    found = [{"device": f"mlx5_{number}", "port": 1, "portGUID": guid} for number, guid in enumerate(guids)]
    return AgentReport("Ports", node, _fabric(node, infiniband=found))


def neighbors(node: str, **chassis: str) -> AgentReport:
    """Return the Ethernet neighbors of a node by its interfaces."""
    links = [
        {"interface": interface, "neighbour": {"chassisID": switch, "portID": "1"}}
        for interface, switch in chassis.items()
    ]
    return AgentReport("Neighbors", node, _fabric(node, ethernet=links))


def _fabric(node: str, **status: object) -> bytes:
    head = {"apiVersion": "gkm.io/v1alpha1", "kind": "NodeFabric", "metadata": {"name": node}}
    return json.dumps(head | {"spec": {"nodeName": node}, "status": status}).encode()
