"""`gkm-operator controllers`: runs the controllers until it is told to end."""

import argparse
import logging
import socket
from threading import Event
from typing import Any

from gkm.api.config import Config
from gkm.hoststate.logs import fields
from gkm.images.registries.pull_secrets import PullSecrets
from gkm.kube.api import Api
from gkm.kube.client import connect
from gkm.kube.errors import ApiError
from gkm.kube.resources import CLUSTERGKMCACHENODES, CLUSTERGKMCACHES, GKMCACHENODES, GKMCACHES, Resource
from gkm.kube.secrets import KubeSecrets, own_namespace

from gkm_operator.caches.controller import CachesController
from gkm_operator.health import HealthServer
from gkm_operator.images import RegistryImages

_LOG = logging.getLogger(__name__)


OURS: tuple[Resource[Any], ...] = (GKMCACHES, CLUSTERGKMCACHES, GKMCACHENODES, CLUSTERGKMCACHENODES)


class KindsMissing(RuntimeError):
    """The API server does not know our kinds."""


def run(arguments: argparse.Namespace, config: Config, stop: Event) -> int:
    """Work until `stop`; return the exit code.

    Raises:
        KindsMissing: the CustomResourceDefinitions are not installed.
    """
    api = connect(arguments.kubeconfig, arguments.context)
    check_kinds(api)
    controller = CachesController(
        api,
        RegistryImages.of(config, secrets=PullSecrets(KubeSecrets(api), config.registries, own_namespace())),
        instance=socket.gethostname(),
    )
    health = HealthServer(arguments.health, lambda: controller.synced)
    health.start()
    try:
        controller.start(stop)
        stop.wait()
    finally:
        controller.close()
        health.close()
    return 0


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
