"""Admission requests about a cache, as an API server sends them."""

import json
from typing import Any

from gkm_operator.admission.review import ReviewRequest, parse

IMAGE = "registry.test/team/cache:1"


def review(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 -- JSON
    request: dict[str, Any] = {
        "uid": "u-1",
        "kind": {"group": "gkm.io", "version": "v1alpha1", "kind": "GKMCache"},
        "operation": "CREATE",
        "name": "x",
        "namespace": "a",
        "object": {"metadata": {"name": "x"}, "spec": {"image": IMAGE}},
        "oldObject": None,
        "userInfo": {"username": "somebody"},
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request | changes}


def request(**changes: Any) -> ReviewRequest:  # noqa: ANN401 -- JSON
    return parse(json.dumps(review(**changes)).encode())


def an_object(image: str, **meta: object) -> dict[str, Any]:
    return {"metadata": {"name": "x", **meta}, "spec": {"image": image}}
