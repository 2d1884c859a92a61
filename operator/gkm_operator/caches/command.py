"""`gkm-operator controllers`: runs the controllers until it is told to end."""

import argparse
import logging
from threading import Event
from typing import Any

from gkm.api.config import Config
from gkm.hoststate.logs import fields
from gkm.images.registries.pull_secrets import PullSecrets
from gkm.kube.api import Api
from gkm.kube.client import connect
from gkm.kube.elector import Elector
from gkm.kube.errors import ApiError
from gkm.kube.resources import CLUSTERGKMCACHENODES, CLUSTERGKMCACHES, GKMCACHENODES, GKMCACHES, Resource
from gkm.kube.secrets import KubeSecrets, own_namespace

from gkm_operator import metrics
from gkm_operator.caches.controller import CachesController
from gkm_operator.health import HealthServer
from gkm_operator.images import RegistryImages

_LOG = logging.getLogger(__name__)


OURS: tuple[Resource[Any], ...] = (GKMCACHES, CLUSTERGKMCACHES, GKMCACHENODES, CLUSTERGKMCACHENODES)


LEASE_PATIENCE_SECONDS = 3.0
LOOK_SECONDS = 0.5


class LeaseLost(RuntimeError):
    """This process does not lead any more."""


class KindsMissing(RuntimeError):
    """The API server does not know our kinds."""


def run(arguments: argparse.Namespace, config: Config, stop: Event) -> int:
    """Work until `stop`; return the exit code.

    Raises:
        KindsMissing: the CustomResourceDefinitions are not installed.
        LeaseLost: another replica may work now.
    """
    api = connect(arguments.kubeconfig, arguments.context, metrics.api_answered)
    check_kinds(api)
    # With a connection of its own, which gives up long before the lease is lost.
    impatient = connect(arguments.kubeconfig, arguments.context, metrics.api_answered, patience=LEASE_PATIENCE_SECONDS)
    elector = Elector(impatient, own_namespace(), arguments.lease, arguments.identity)
    metrics.LEADS.set_function(lambda: elector.leads)
    controller = CachesController(
        api,
        RegistryImages.of(config, secrets=PullSecrets(KubeSecrets(api), config.registries, own_namespace())),
        instance=arguments.identity,
    )
    health = HealthServer(arguments.health, lambda: controller.synced, {"/metrics": metrics.page})
    health.start()
    try:
        # All watch, so that who follows a leader knows everything already; one works.
        if controller.watch(stop) and elector.lead(stop):
            controller.work()
            _lead(elector, stop)
    finally:
        controller.close()
        elector.release()
        health.close()
    return 0


def _lead(elector: Elector, stop: Event) -> None:
    """Return at `stop`.

    Raises:
        LeaseLost: somebody else may work by now. The process must end at once: what it began, it cannot call back.
    """
    while not stop.wait(LOOK_SECONDS):
        if not elector.leads:
            raise LeaseLost("the lease was not renewed in time; another replica takes over")


def check_kinds(api: Api) -> None:
    """See that our kinds are there; an API server that does not answer is waited for later.

    Raises:
        KindsMissing: one is not.
    """
    for resource in OURS:
        try:
            next(iter(api.list_pages(resource, limit=1)))
        except ApiError as error:
            if error.not_found:
                raise KindsMissing(f"the API server has no {resource.plural}: apply crds/") from error
            _LOG.warning("cannot list yet", extra=fields(resource=resource.plural, why=str(error)))
