"""A Protocol for the part of the cluster that a review reads; `cluster_view.ReviewView` implements it."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from gkm.api.computedomains import ComputeDomain
from gkm.api.domain_capacity import DomainCapacity
from gkm.api.grove import PodCliqueSet
from gkm.kube.resources import Resource

from gkm_operator.mnnvl.gpu_requests import DeviceClasses

T = TypeVar("T")


class ViewUnavailable(Exception):
    """The cluster cannot be read now for a review; the message tells why, and a retry can succeed."""


class TooManyClaims(ViewUnavailable):
    """The reviewed object names more claims than a review may read; the message says what to do. A retry is useless."""


class View(Protocol):
    """The part of the cluster that one review can read."""

    @property
    def grove_manages_domains(self) -> bool | None:
        """Return whether the installed Grove operator writes ComputeDomains; None while that is unknown."""

    @property
    def capacity(self) -> DomainCapacity | None:
        """Return the free nodes for ComputeDomains; None while they are unknown."""

    def pod_clique_set(self, namespace: str, name: str, uid: str = "", *, again: bool = False) -> PodCliqueSet | None:
        """Return a PodCliqueSet as last observed; None if it does not exist.

        A set that was not observed yet, or has another uid, or `again`, is read from the API server.

        Raises:
            ViewUnavailable: the API server does not answer.
        """

    def domains_of(self, pod_clique_set: PodCliqueSet) -> Sequence[ComputeDomain]:
        """Return the ComputeDomains that a PodCliqueSet owns, as last observed.

        Raises:
            ViewUnavailable: ComputeDomains are not listed yet.
        """

    def compute_domain(self, namespace: str, name: str) -> ComputeDomain | None:
        """Return a ComputeDomain as last observed; None if it does not exist. Raises as `domains_of` does."""

    def object(self, resource: Resource[T], namespace: str, name: str, seconds: float) -> T | None:
        """Return an object from a read at most `seconds` ago; None if it does not exist.

        Raises:
            ViewUnavailable: the API server does not answer.
        """

    def device_classes(self, namespace: str, *, strict: bool = False) -> DeviceClasses:
        """Return a function that returns the device classes of a claim; use it for one review only.

        It raises ViewUnavailable if the API server does not answer, TooManyClaims if it was called for too many claims.
        A claim that does not exist has no classes, and also raises ViewUnavailable if `strict`.
        """
