"""Objects as a parent requires them, and their difference from those that exist, as requests to send. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gkm.kube.resources import Resource
from msgspec import to_builtins

from gkm_operator.cliques.kinds import RESOURCES, Child, Json, Parent, Words

MAX_CHILDREN = 10_000
"""Children of one parent: a typing error in `replicas` must not fill the cluster."""


@dataclass(frozen=True, slots=True)
class DesiredObject:
    """An object as its parent requires it. `spec` has only the fields that the parent decides about."""

    resource: Resource[Any]
    name: str
    labels: Words
    spec: Json
    annotations: Words = field(default_factory=dict)
    initial: Json = field(default_factory=dict)
    """Fields of the spec that are not the parent's after the creation: users and autoscalers change replicas."""

    def body(self, parent: Parent) -> Json:
        """Return the object to create."""
        resource, metadata = RESOURCES[type(parent)], parent.metadata
        owner = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "name": metadata.name,
            "uid": metadata.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": {
                "name": self.name,
                "namespace": metadata.namespace,
                "labels": self.labels,
                "annotations": self.annotations,
                "ownerReferences": [owner],
            },
            "spec": self.spec | self.initial,
        }


@dataclass(frozen=True, slots=True)
class Difference:
    """Objects to delete, merge patches (RFC 7386) of existing objects, and objects to create."""

    delete: Sequence[Child]
    patch: Sequence[tuple[Child, Json]]
    create: Sequence[DesiredObject]


PatchOf = Callable[[DesiredObject, Child], Json]
"""As `patch`."""


def difference(
    desired: Iterable[DesiredObject], observed: Iterable[Child], patch_of: PatchOf | None = None
) -> Difference:
    """Compare by kind and name. An object that is being deleted is left alone; its name is free once it is gone.

    `patch_of` replaces `patch`, which needs all fields of a child.
    """
    made_for = patch_of or patch
    present = {(RESOURCES[type(child)].plural, child.metadata.name): child for child in observed}
    required = {(one.resource.plural, one.name): one for one in desired}
    living = {key: child for key, child in present.items() if not child.metadata.terminating}
    return Difference(
        [child for key, child in living.items() if key not in required],
        [
            (living[key], made)
            for key, one in required.items()
            if key in living and (made := made_for(one, living[key]))
        ],
        [one for key, one in required.items() if key not in present],
    )


def patch(desired: DesiredObject, observed: Child) -> Json:
    """Return the merge patch that makes an object as required; {} if it is.

    It is, if it has every required label, annotation and field: the API server adds defaults, and admission adds
    labels, and claims at the ends of lists. A patch replaces labels, annotations and nested fields as a whole, so it
    also removes what the template no longer has; the hash of the template, a label, shows that.
    """
    present = to_builtins(observed)
    metadata, spec = present["metadata"], present.get("spec", {})
    pairs = ((metadata["labels"], desired.labels), (metadata["annotations"], desired.annotations), (spec, desired.spec))
    if all(_covers(*pair) for pair in pairs):
        return {}
    return {
        "metadata": {
            "labels": _replacement(metadata["labels"], desired.labels),
            "annotations": _replacement(metadata["annotations"], desired.annotations),
            # Computed from this version: a later one may need another patch.
            "resourceVersion": observed.metadata.resource_version,
        },
        "spec": {name: _replacement(spec.get(name), value) for name, value in desired.spec.items()},
    }


def _covers(observed: object, desired: object) -> bool:
    """Return whether `observed` has all of `desired`; maps may have more keys, and lists more items at their ends."""
    if isinstance(desired, Mapping):
        return isinstance(observed, Mapping) and all(
            name in observed and _covers(observed[name], value) for name, value in desired.items()
        )
    if isinstance(desired, list):
        pairs = zip(observed, desired, strict=False) if isinstance(observed, list) else ()
        return isinstance(observed, list) and len(observed) >= len(desired) and all(_covers(*pair) for pair in pairs)
    return observed == desired


def _replacement(observed: Any, desired: Any) -> Any:  # noqa: ANN401 -- JSON
    if not (isinstance(observed, Mapping) and isinstance(desired, Mapping)):
        return desired
    removed = dict.fromkeys(observed.keys() - desired.keys())
    return removed | {name: _replacement(observed.get(name), value) for name, value in desired.items()}
