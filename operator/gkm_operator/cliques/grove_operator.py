"""Whether the real Grove operator is installed: two operators of one kind would undo each other's work.

Its Helm chart installs a MutatingWebhookConfiguration of a fixed name, and a ClusterRole whose name is configurable.
"""

from collections.abc import Iterator

from gkm.api.features import Feature, install
from gkm.kube.api import Api, ListSelector
from gkm.kube.errors import ApiError
from gkm.kube.resources import Resource
from msgspec import Struct

from gkm_operator.cliques.kinds import RESOURCES

_ADMINISTRATOR_MUST_ACT = (403, 404)


class GroveOperatorPresent(RuntimeError):
    """The real Grove operator is installed."""


class BuiltInControllersBlocked(RuntimeError):
    """The API server lacks a kind, or denies to list it."""


class Trace(Struct, frozen=True):
    """An object of which only the existence counts."""


def traces(cluster_role: str) -> Iterator[tuple[Resource[Trace], ListSelector]]:
    """Yield where to look for the operator."""
    for version, kind, plural, name in (
        (
            "admissionregistration.k8s.io/v1",
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
            "podcliqueset-defaulting-webhook",
        ),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", cluster_role),
    ):
        resource = Resource(version, kind, plural, namespaced=False, type=Trace)
        yield resource, ListSelector(fields=f"metadata.name={name}")


def check(api: Api, cluster_role: str) -> None:
    """Check that the real operator is absent, and that everything that the controllers watch can be listed.

    Raises:
        GroveOperatorPresent, BuiltInControllersBlocked: an administrator must act.
        ApiError: the API server does not respond, or not now.
    """
    for resource, selector in (*traces(cluster_role), *((kind, ListSelector()) for kind in RESOURCES.values())):
        try:
            page = next(iter(api.list_pages(resource, selector, limit=1)))
        except ApiError as error:
            if error.status in _ADMINISTRATOR_MUST_ACT:
                raise BuiltInControllersBlocked(
                    f"grove.builtInControllers is on, and {resource.plural} cannot be listed ({error.message}): apply "
                    f"Grove's CustomResourceDefinitions, and {install(Feature.CLIQUES)}; or switch it off in gkm-config"
                ) from error
            raise
        if resource.type is Trace and page.entries:
            raise GroveOperatorPresent(
                f"grove.builtInControllers is on, and the Grove operator is installed ({resource.kind} "
                f"{page.entries[0].name} exists): switch it off in gkm-config, or uninstall the Grove operator"
            )
