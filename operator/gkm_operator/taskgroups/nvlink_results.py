"""Reads the results of tests of NVLink: the messages with which the pods of a Job ended.

Any user can set labels: a pod is the Job's if the Job is its controller.
"""

from itertools import chain, islice

from gkm.kube.api import Api, ListSelector
from gkm.kube.resources import Resource
from msgspec import Struct

from gkm_operator.taskgroups.members import GroupMember

_MAX_PODS, _PAGE = 100, 10
"""A page has whole pods, each of up to 1.5 MB (etcd), although little of them is decoded."""
_UID_LABEL = "batch.kubernetes.io/controller-uid"
"""The label of a Job's pods with the uid of the Job (Kubernetes 1.27)."""


class _Owner(Struct):
    uid: str
    controller: bool = False


class _Metadata(Struct, rename="camel"):
    owner_references: list[_Owner] | None = None


class _Terminated(Struct):
    message: str = ""


class _State(Struct):
    terminated: _Terminated | None = None


class _Container(Struct):
    state: _State


class _Status(Struct, rename="camel"):
    container_statuses: list[_Container] | None = None


class _Pod(Struct):
    metadata: _Metadata
    status: _Status


PODS = Resource("v1", "Pod", "pods", namespaced=True, type=_Pod)


def messages(api: Api, job: GroupMember) -> list[str]:
    """Return the termination messages of a Job's pods.

    Raises:
        ApiError: the pods cannot be listed.
    """
    selector = ListSelector(job.metadata.namespace, labels=f"{_UID_LABEL}={job.metadata.uid}")
    entries = chain.from_iterable(page.entries for page in api.list_pages(PODS, selector, limit=_PAGE))
    pods = [entry.value for entry in islice(entries, _MAX_PODS) if _is_of(entry.value, job)]
    ended = (one.state.terminated for pod in pods for one in pod.status.container_statuses or ())
    return [terminated.message for terminated in ended if terminated is not None]


def _is_of(pod: _Pod, job: GroupMember) -> bool:
    return any(one.controller and one.uid == job.metadata.uid for one in pod.metadata.owner_references or ())
