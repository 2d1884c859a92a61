"""The warnings of a real API server about an object that it would store."""

from gkm.kube.resources import Json
from support.cluster.cluster import Cluster


def warned(cluster: Cluster, made: Json) -> str:
    """Return the warnings for a new object in the namespace default, which the API server takes and does not store."""
    metadata = {key: value for key, value in made["metadata"].items() if key in {"name", "labels"}}
    return "\n".join(cluster.objects.warnings(made | {"metadata": metadata}))
