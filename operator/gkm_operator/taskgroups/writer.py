"""Send the requests that change or read task groups and their objects."""

from gkm.api.task_groups import ENDED, FINALIZER, TaskGroup, TaskGroupStatus
from gkm.kube.api import Api
from gkm.kube.discovery import KindName
from gkm.kube.errors import ApiError
from gkm.kube.resources import TASKGROUPS, Json
from gkm.kube.workqueue import Retry
from msgspec import structs, to_builtins

from gkm_operator import metrics
from gkm_operator.taskgroups.kinds import KindWatches
from gkm_operator.taskgroups.members import Living, MemberMetadata, Seen, Sight, owned_by, watched

FIELD_MANAGER = "gkm"
_ENDING = ENDED | {"Ending"}


class GroupWriter:
    """Writes TaskGroups and their objects; no other code does."""

    def __init__(self, api: Api, kinds: KindWatches) -> None:
        self._api = api
        self._kinds = kinds

    def finalize(self, group: TaskGroup, *, present: bool) -> TaskGroup:
        """Add (`present`) or remove GKM's finalizer on a TaskGroup; return the stored object.

        Raises:
            ApiError: the group has changed, or the API server refused the patch.
        """
        others = [each for each in group.metadata.finalizers if each != FINALIZER]
        metadata = {
            "finalizers": [*others, FINALIZER] if present else others or None,
            "resourceVersion": group.metadata.resource_version,
        }
        return self._api.merge(TASKGROUPS, group.metadata.name, {"metadata": metadata}, group.metadata.namespace)

    def read(self, group: TaskGroup) -> TaskGroup | None:
        """Read a whole TaskGroup from the API server; None if it does not exist.

        Raises:
            ApiError: the API server does not answer.
        """
        return self._api.find(TASKGROUPS, group.metadata.name, group.metadata.namespace)

    def write_status(self, group: TaskGroup, status: TaskGroupStatus) -> TaskGroup:
        """Write the changed fields of a TaskGroup's status unless the group has changed; return the stored object.

        Raises:
            ApiError: the group has changed, or the API server refused the status.
        """
        metadata = group.metadata
        patch = {"metadata": {"resourceVersion": metadata.resource_version}, "status": _changes(group.status, status)}
        return self._api.merge(TASKGROUPS, metadata.name, patch, metadata.namespace, subresource="status")

    def create(self, group: TaskGroup, body: Json) -> Seen:
        """Create an object of a TaskGroup; return what is known about the object now.

        Raises:
            ApiError: the API server refused the object.
            Retry: it does not serve this version of the kind, or another object of this name is being deleted.
        """
        kind, name = KindName.of(body["apiVersion"], body["kind"]), body["metadata"]["name"]
        self._kinds.remember(kind)
        served = self._kinds.served(kind)
        resource = next((each for each in served if each.api_version == body["apiVersion"]), None)
        if resource is None:
            self._kinds.missing(kind)
            raise Retry(f"the API server does not serve {body['kind']} of {body['apiVersion']} in namespaces")
        try:
            made = self._api.create(watched(resource), body, field_manager=FIELD_MANAGER)
        except ApiError as error:
            if error.not_found:
                self._kinds.missing(kind)
            if error.reason != "AlreadyExists":
                raise
        else:
            metrics.TASK_GROUP_OBJECTS.labels("created").inc()
            return Living(made.metadata.uid)
        found = self._read(group.metadata.namespace, kind, name)
        if found is None or (found.deletion_timestamp is not None and not owned_by(found, group.metadata.uid)):
            raise Retry(f"another {body['kind']} {name} is being deleted, and its name is free then")
        return _sight(found, group)

    def read_object(self, group: TaskGroup, kind: KindName, name: str) -> Seen:
        """Read from the API server which object exists under the name of a TaskGroup's object.

        Raises:
            ApiError, Retry: it does not answer.
        """
        found = self._read(group.metadata.namespace, kind, name)
        return Sight.GONE if found is None else _sight(found, group)

    def delete(self, namespace: str, kind: KindName, name: str, uid: str, result: str = "deleted") -> Seen:
        """Delete an object with this uid by foreground deletion; return what is known about the object now.

        Raises:
            ApiError, Retry: the API server refused it, or does not answer.
        """
        served = self._kinds.served(kind)
        if not served:
            return Sight.GONE
        try:
            self._api.delete(watched(served[0]), name, namespace, uid=uid, foreground=True)
        except ApiError as error:
            if not error.conflict and not error.not_found:
                raise
            self._check_served(kind, error)
            found = self._read(namespace, kind, name) if error.conflict else None
            if found is not None and found.uid == uid:
                raise
            return Sight.GONE
        metrics.TASK_GROUP_OBJECTS.labels(result).inc()
        return Living(uid, terminating=True)

    def _read(self, namespace: str, kind: KindName, name: str) -> MemberMetadata | None:
        """Return the metadata of an object, None if it does not exist, or its kind is not served."""
        served = self._kinds.served(kind)
        try:
            return self._api.get(watched(served[0]), name, namespace).metadata if served else None
        except ApiError as error:
            if not error.not_found:
                raise
            self._check_served(kind, error)
            return None

    def _check_served(self, kind: KindName, error: ApiError) -> None:
        """Raise Retry if an answer is about a version that is not served any more, and another version is."""
        if error.not_found and error.reason != "NotFound":
            self._kinds.missing(kind)
            if self._kinds.served(kind):
                raise Retry(f"the API server serves {kind} in another version now")


def _changes(old: TaskGroupStatus, new: TaskGroupStatus) -> Json:
    """Return the fields that differ, so that a write needs no manifests unless it changes objects.

    Those of a group that ends are always written, without manifests: it becomes smaller, and so its end is never too
    large to be written.
    """
    fields = {field.name: field.encode_name for field in structs.fields(TaskGroupStatus)}
    changed = {name for name in fields if getattr(old, name) != getattr(new, name)}
    if new.phase in _ENDING and new.objects:
        new = structs.replace(new, objects=[structs.replace(each, manifest=None) for each in new.objects])
        changed.add("objects")
    values = to_builtins(new)  # without defaults, which the API does not have either
    return {fields[name]: values.get(fields[name]) for name in sorted(changed)}


def _sight(found: MemberMetadata, group: TaskGroup) -> Seen:
    if not owned_by(found, group.metadata.uid):
        return Sight.FOREIGN
    return Living(found.uid, found.deletion_timestamp is not None, found.finalizers or ())
