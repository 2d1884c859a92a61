"""The ProviderTree of one provider in the API, which only the process of this provider writes.

A write is one merge patch, so that tree, counts and revision change together or not at all. Its answer has the status
of the controllers: no watch is needed.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from gkm.api.crds import LABELS
from gkm.api.meta import API_VERSION
from gkm.api.provider_trees import ProviderTree, ProviderTreeSpec, ProviderTreeStatus
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.resources import PROVIDER_TREES

FIELD_MANAGER = "gkm.io/provider"


class TreeObject:
    """For one thread."""

    def __init__(self, api: Api, name: str) -> None:
        self._api = api
        self._name = name
        self._stored_tree: str | None = None

    def read(self) -> ProviderTreeSpec:
        """Return what an earlier process wrote, an empty spec without it.

        Raises:
            ApiError: the API server does not respond, or the object cannot be read as a ProviderTree.
        """
        try:
            spec = self._api.get(PROVIDER_TREES, self._name).spec
        except ApiError as error:
            if error.not_found:
                return ProviderTreeSpec()
            raise
        self._stored_tree = spec.tree
        return spec

    def write(self, spec: ProviderTreeSpec) -> ProviderTreeStatus:
        """Write what differs, and all of it if the object is gone; return the status of the controllers.

        Raises:
            ApiError: it is not written.
        """
        fields = _fields(spec)
        changed = {key: value for key, value in fields.items() if key != "tree" or value != self._stored_tree}
        try:
            stored = self._api.merge(PROVIDER_TREES, self._name, {"spec": changed})
        except ApiError as error:
            if not error.not_found:
                raise
            stored = self._create(fields)
        # A person may have deleted and restored an older object meanwhile.
        self._stored_tree = stored.spec.tree
        return stored.status

    def _create(self, fields: Mapping[str, Any]) -> ProviderTree:
        value = {
            "apiVersion": API_VERSION,
            "kind": "ProviderTree",
            "metadata": {"name": self._name, "labels": dict(LABELS)},
            "spec": {key: value for key, value in fields.items() if value is not None},
        }
        return self._api.create(PROVIDER_TREES, value, field_manager=FIELD_MANAGER)


def _fields(spec: ProviderTreeSpec) -> Mapping[str, Any]:
    """Return all fields: a patch without one would leave its old value."""
    return {each.encode_name: getattr(spec, each.name) for each in msgspec.structs.fields(spec)}
