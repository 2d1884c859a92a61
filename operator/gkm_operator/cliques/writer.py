"""The only writer of the built-in controllers: sends a Difference, writes status, and emits Events."""

from collections.abc import Callable, Iterator
from functools import partial

from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.events import EventBody, Recorder, Regarding
from gkm.kube.workqueue import Retry

from gkm_operator.cliques.desired import Difference
from gkm_operator.cliques.kinds import RESOURCES, Parent, Status
from gkm_operator.cliques.status import fields_of

FIELD_MANAGER = "gkm-operator"
MAX_REQUESTS = 100
"""Requests of one pass, so that a large object delays no other."""
REST_SECONDS = 0.2
"""The pause before the rest is sent, so that the watch shows the first part."""
_MAX_CONFLICTS = 3
"""Conflicts that a log line has."""
_REFUSED = range(400, 429)
"""The status of a refusal of this request; 429 and 5xx are about the server."""


class ChildWriter:
    """`check_may_write` is called before every write, and raises when this process must not write any more."""

    def __init__(self, api: Api, recorder: Recorder, check_may_write: Callable[[], None]) -> None:
        self._api = api
        self._recorder = recorder
        self._check_may_write = check_may_write

    def send(self, parent: Parent, found: Difference) -> float | None:
        """Send at most MAX_REQUESTS requests; return the seconds until the rest must be sent, None without a rest.

        The first refusal ends it: a quota, or admission, that refuses one child refuses the next ones, too.

        Raises:
            Retry: objects are not as the watch shows them, or a name belongs to another object.
            ApiError: the API server refused a request, or does not answer.
        """
        conflicts: list[str] = []
        rest = None
        for count, (action, what, request) in enumerate(self._requests(parent, found)):
            if count == MAX_REQUESTS:
                rest = REST_SECONDS
                break
            self._check_may_write()
            try:
                request()
            except ApiError as error:
                if action == "Delete" and error.not_found:
                    continue
                if not error.conflict and not error.not_found:
                    if error.status in _REFUSED:
                        self.warn(parent, f"{action}Failed", f"{what}: {error.message}")
                    raise
                conflicts.append(f"{what}: {error.message}")
        if conflicts:
            raise Retry("; ".join(conflicts[:_MAX_CONFLICTS]))
        return rest

    def write_status(self, parent: Parent, status: Status) -> None:
        """Write the status if it differs.

        Raises:
            ApiError: the API server refused it.
        """
        if status == parent.status:
            return
        self._check_may_write()
        resource, metadata = RESOURCES[type(parent)], parent.metadata
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            # The status of an older object of the same name would be a conflict.
            "metadata": {
                "name": metadata.name,
                "namespace": metadata.namespace,
                "resourceVersion": metadata.resource_version,
            },
            "status": fields_of(parent, status),
        }
        try:
            self._api.apply(resource, body, field_manager=FIELD_MANAGER, subresource="status")
        except ApiError as error:
            # After a change, the watch delivers the newer object, and the next pass writes its status.
            if not error.conflict and not error.not_found:
                raise

    def warn(self, parent: Parent, reason: str, note: str) -> None:
        """Emit an Event about a parent; it exists once for each generation, reason and note."""
        resource, metadata = RESOURCES[type(parent)], parent.metadata
        about = Regarding(resource.api_version, resource.kind, metadata.name, metadata.namespace, metadata.uid)
        self._recorder.emit(about, EventBody("Warning", reason, "Reconcile", note), str(metadata.generation))

    def _requests(self, parent: Parent, found: Difference) -> Iterator[tuple[str, str, Callable[[], object]]]:
        api, namespace = self._api, parent.metadata.namespace
        for child in found.delete:
            resource, name, uid = RESOURCES[type(child)], child.metadata.name, child.metadata.uid
            yield "Delete", f"{resource.kind} {name}", partial(api.delete, resource, name, namespace, uid=uid)
        for child, patch in found.patch:
            resource, name = RESOURCES[type(child)], child.metadata.name
            yield "Update", f"{resource.kind} {name}", partial(api.merge, resource, name, patch, namespace)
        for one in found.create:
            yield "Create", f"{one.resource.kind} {one.name}", partial(api.create, one.resource, one.body(parent))
