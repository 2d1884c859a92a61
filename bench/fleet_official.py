"""The peer: the fleet watched by the official client, in the smallest loop that computes the same sums."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from fleet_sums import Digests
from kubernetes import client, watch

PAGE_LIMIT = 500


class Loop:
    """List in pages, then watch. Of a node its part in the sums is kept, to be taken back."""

    def __init__(self, namespace: str, digests: Digests) -> None:
        self._list = client.CustomObjectsApi().list_namespaced_custom_object
        self._what = ("gkm.io", "v1alpha1", namespace, "gkmcachenodes")
        self._digests = digests
        self._nodes: dict[str, dict[str, str]] = {}
        self._sums: dict[str, Counter[str]] = {name: Counter() for name in digests}

    def listed(self) -> str:
        """Take in all that there is; return the resourceVersion to go on from."""
        more = ""
        while True:
            page: Any = self._list(*self._what, limit=PAGE_LIMIT, _continue=more)
            for node in page["items"]:
                self._take(node)
            more = page["metadata"].get("continue", "")
            if not more:
                return str(page["metadata"]["resourceVersion"])

    def watch(self, version: str, took: Callable[[str], None]) -> None:
        """Process changes forever; `took` receives the version of each."""
        changes = watch.Watch().stream(self._list, *self._what, resource_version=version)  # type: ignore[no-untyped-call]
        for event in changes:
            self._take(event["object"])
            took(event["object"]["metadata"]["resourceVersion"])

    def sums(self) -> dict[str, list[int]]:
        """Return total, ready and failed nodes by cache."""
        return {name: [count.total(), count["Ready"], count["Failed"]] for name, count in self._sums.items()}

    def _take(self, node: dict[str, Any]) -> None:
        name = node["metadata"]["name"]
        said = node["status"]["caches"].items()
        new = {cache: one["state"] if one["digest"] == self._digests[cache] else "" for cache, one in said}
        for change, states in ((-1, self._nodes.get(name, {})), (1, new)):
            for cache, state in states.items():
                self._sums[cache][state] += change
        self._nodes[name] = new
