"""Whether what the controllers need is installed: our kinds, and the rights to use them.

What only a person can mend ends the process with a line that says how, so that a rollout halts and is seen. What
passes by itself, an API server that is away above all, is waited for.
"""

import logging
from threading import Event
from typing import Any

from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff
from gkm.kube.api import EVERYTHING, Api, ListSelector
from gkm.kube.errors import ApiError
from gkm.kube.leases import LEASES
from gkm.kube.resources import (
    CLUSTERGKMCACHENODES,
    CLUSTERGKMCACHES,
    GKMCACHENODES,
    GKMCACHES,
    PLACEMENTPLANS,
    RUNS,
    Resource,
)

from gkm_operator.caches.nodes.liveness import AGENT_SETS, AGENTS, NODES, agent_set
from gkm_operator.preconditions.crds import DEFINITIONS, foreign

_LOG = logging.getLogger(__name__)

OURS: tuple[Resource[Any], ...] = (
    GKMCACHES,
    CLUSTERGKMCACHES,
    GKMCACHENODES,
    CLUSTERGKMCACHENODES,
    RUNS,
    PLACEMENTPLANS,
)
BACKOFF = Backoff(0.5, 15.0)
_FORBIDDEN = 403


class KindsMissing(RuntimeError):
    """The API server does not know our kinds."""


class KindsForeign(RuntimeError):
    """The API server has kinds of our names that are not ours."""


class RightsMissing(RuntimeError):
    """The API server does not let us; the message says which rule is missing."""


def wait(api: Api, lease: tuple[str, str], stop: Event, backoff: Backoff = BACKOFF) -> bool:
    """Return when everything is there; False when `stop` is set before. `lease` is (namespace, name) of the leader's.

    Raises:
        KindsMissing, KindsForeign, RightsMissing: as `check`.
    """
    failures = 0
    while not stop.is_set():
        try:
            check(api, lease)
        except ApiError as error:
            failures += 1
            _LOG.warning("waits for the API server", extra=fields(failures=failures, why=str(error)))
            stop.wait(backoff.pause(failures, error.retry_after))
        else:
            return True
    return False


def check(api: Api, lease: tuple[str, str]) -> None:
    """See that our kinds are there, are ours, and may be listed, and the rest that is asked for before anybody leads.

    Raises:
        KindsMissing: one is not there.
        KindsForeign: one is another's.
        RightsMissing: a request was forbidden.
        ApiError: the API server does not answer, or not now.
    """
    try:
        for resource in OURS:
            try:
                found = api.get(DEFINITIONS, f"{resource.plural}.{resource.api_version.partition('/')[0]}")
                if why := foreign(resource.plural, found):
                    raise KindsForeign(why)
                next(iter(api.list_pages(resource, limit=1)))
            except ApiError as error:
                if error.not_found:
                    raise KindsMissing(f"the API server has no {resource.plural}: apply crds/") from error
                raise
        for other, selector in _optional_rights(lease[0]):
            next(iter(api.list_pages(other, selector, limit=1)))
        _read(api, lease)
    except ApiError as error:
        if error.status == _FORBIDDEN:
            raise RightsMissing(
                f"{error.message}: apply deploy/base/controllers.yaml, which has the rule, and bind it to this account"
            ) from error
        raise


def _optional_rights(namespace: str) -> tuple[tuple[Resource[Any], ListSelector], ...]:
    # Pods of all namespaces are listed once there is a Run; who may not must be told before that.
    return (NODES, EVERYTHING), (AGENTS, EVERYTHING), (AGENT_SETS, agent_set(namespace))


def _read(api: Api, lease: tuple[str, str]) -> None:
    """Read the Lease: who may not, would wait for ever to lead. That there is none yet is no matter."""
    namespace, name = lease
    try:
        api.get(LEASES, name, namespace)
    except ApiError as error:
        if not error.not_found:
            raise
