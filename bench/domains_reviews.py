"""Reviews of PodCliques sent to the admission process itself, as the API server sends them: one connection, TLS."""

import http.client
import json
import ssl
import time

from domains_place import DomainsPlace
from gkm.kube.resources import Json
from support.grove import desired

TIMEOUT_SECONDS = 30.0
_OK = 200


def review_milliseconds(place: DomainsPlace, sets: list[Json], times: int) -> list[float]:
    """Return how long each of `times` reviews took, of the first PodClique of one set after another."""
    context = ssl.create_default_context(cadata=place.cluster.control_plane.authority.pem.decode())
    port = place.gkm.webhook_port
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS, context=context)
    bodies = [_review(next(desired.standalone_cliques(one))) for one in sets]
    took = []
    try:
        for number in range(times):
            body = bodies[number % len(bodies)]
            began = time.perf_counter()
            connection.request("POST", "/podcliques?timeout=10s", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            received = answer.read()
            took.append((time.perf_counter() - began) * 1000)
            _check(answer.status, received)
    finally:
        connection.close()
    return took


def _review(clique: Json) -> bytes:
    metadata = clique["metadata"]
    request = {
        "uid": "review",
        "kind": {"group": "grove.io", "version": "v1alpha1", "kind": "PodClique"},
        "operation": "CREATE",
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "object": clique,
        "oldObject": None,
        "userInfo": {"username": "bench"},
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def _check(status: int, body: bytes) -> None:
    """Raise RuntimeError for a review that added no claim: its time would say nothing."""
    response = json.loads(body)["response"] if status == _OK else {}
    if not (response.get("allowed") and response.get("patch")):
        raise RuntimeError(f"a review of a PodClique was answered with {status} {body[:500]!r}")
