"""The kinds of the product as JSON, for tests and benches that compare whole objects."""

from dataclasses import replace
from typing import Any

from gkm.kube.resources import Json, Resource


def whole(resource: Resource[Any]) -> Resource[Json]:
    """Return the collection with its objects as JSON, which a reflector holds whatever their size."""
    return replace(resource.of(Json), unbounded="tests compare whole objects")
