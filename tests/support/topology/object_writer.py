"""Writes HyperNodes to an API server one by one. It shares no code with the controllers.

Volcano's own controller writes the status of HyperNodes soon after each of our writes, which changes their
resourceVersion. So an update tests the generation, which only a change of the spec raises.
"""

import json
from typing import Any

import urllib3
from gkm.topology.hypernodes import HyperNode, Member
from gkm.topology.trees.volcano import manifest
from gkm.topology.trees.write_order import Write
from support.cluster.cluster import Cluster
from support.host.waiting import scaled

Json = dict[str, Any]
_PATH = "/apis/topology.volcano.sh/v1alpha1/hypernodes"


class HyperNodeWriter:
    """The HyperNodes of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._url = f"{cluster.url}{_PATH}"
        self._pool = urllib3.PoolManager(ssl_context=cluster.control_plane.admin_context())

    def existing(self) -> dict[str, HyperNode]:
        """Return the HyperNodes of the API server, of all sources, as values."""
        return {item["metadata"]["name"]: _value(item) for item in self._request("GET", self._url)["items"]}

    def versions(self) -> dict[str, str]:
        """Return the resourceVersion of each HyperNode, which every write changes."""
        items = self._request("GET", self._url)["items"]
        return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}

    def write(self, write: Write) -> None:
        """Do one write.

        Raises:
            Refused: the API server did not accept it.
        """
        body = manifest(write.hypernode)
        if write.action == "create":
            self._request("POST", self._url, body)
            return
        url = f"{self._url}/{write.hypernode.name}"
        if write.action == "delete":
            self._request("DELETE", url)
            return
        generation = self._request("GET", url)["metadata"]["generation"]
        test = {"op": "test", "path": "/metadata/generation", "value": generation}
        self._request("PATCH", url, [test, {"op": "replace", "path": "/spec", "value": body["spec"]}])

    def clear(self) -> None:
        """Delete all HyperNodes."""
        self._request("DELETE", self._url)

    def _request(self, method: str, url: str, body: object = None) -> Json:
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": "application/json-patch+json" if method == "PATCH" else "application/json"}
        answer = self._pool.request(method, url, body=data, headers=headers, timeout=scaled(120))
        found: Json = json.loads(answer.data)
        if answer.status not in {200, 201}:
            raise Refused(f"{method} {url}: {answer.status} {found.get('message')}")
        return found


class Refused(Exception):
    """The API server did not accept a write; the message has its reason."""


def _value(item: Json) -> HyperNode:
    spec = item["spec"]
    members = tuple(sorted(Member(one["type"], one["selector"]["exactMatch"]["name"]) for one in spec["members"]))
    return HyperNode(item["metadata"]["name"], spec.get("tierName", ""), members, spec["tier"])
