"""Checks that our kinds are installed and that this account may use them.

An error that only an administrator can repair ends the process with a line that tells how, so that a rollout stops
visibly. The controllers wait out passing errors, such as an unavailable API server.
"""

import logging
from collections.abc import Callable, Iterable
from threading import Event
from typing import Any

from gkm.api.features import RESTORE_RIGHTS, Feature, install
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff
from gkm.kube.api import Api
from gkm.kube.errors import ApiError
from gkm.kube.leases import LEASES
from gkm.kube.resources import (
    CLUSTERGKMCACHENODES,
    CLUSTERGKMCACHES,
    DEFINITIONS,
    GKMCACHENODES,
    GKMCACHES,
    PLACEMENTPLANS,
    RUNS,
    Resource,
)

from gkm_operator.caches.nodes.liveness import AGENT_SETS, AGENTS, agent_set
from gkm_operator.computedomains import presence
from gkm_operator.nodes import NODES
from gkm_operator.preconditions.crds import foreign

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
    """The API server does not have our kinds."""


class KindsForeign(RuntimeError):
    """The API server has kinds of the same names from another product."""


class MNNVLMissing(RuntimeError):
    """MNNVL is enabled, and the API server lacks a kind that it needs."""


class RightsMissing(RuntimeError):
    """The API server denies a request; the message names the missing rule."""


def wait(
    api: Api,
    lease: tuple[str, str],
    stop: Event,
    backoff: Backoff = BACKOFF,
    *,
    mnnvl_enabled: bool = False,
    also: Iterable[Callable[[], None]] = (),
) -> bool:
    """Return True when all checks pass, False when `stop` is set first. `lease` is the leader's (namespace, name).

    `also` are further checks.

    Raises:
        KindsMissing, KindsForeign, MNNVLMissing, RightsMissing: as `check` and `check_mnnvl`; and what `also` raises.
    """
    failures = 0
    while not stop.is_set():
        try:
            check(api, lease)
            if mnnvl_enabled:
                check_mnnvl(api)
            for further in also:
                further()
        except ApiError as error:
            failures += 1
            _LOG.warning("API server not available", extra=fields(failures=failures, why=str(error)))
            stop.wait(backoff.pause(failures, error.retry_after))
        else:
            return True
    return False


def check(api: Api, lease: tuple[str, str]) -> None:
    """Check that our kinds exist, are ours and can be listed, and that all other resources can be read.

    Raises:
        KindsMissing: a kind does not exist.
        KindsForeign: a kind is another product's.
        RightsMissing: a request was denied.
        ApiError: the API server does not respond, or not now.
    """
    try:
        for resource in OURS:
            try:
                found = api.get(DEFINITIONS, f"{resource.plural}.{resource.api_version.partition('/')[0]}")
                if reason := foreign(resource.plural, found):
                    raise KindsForeign(reason)
                next(iter(api.list_pages(resource, limit=1)))
            except ApiError as error:
                if error.not_found:
                    raise KindsMissing(f"the API server has no {resource.plural}: apply crds/") from error
                raise
        next(iter(api.list_pages(NODES, limit=1)))
        # The first Run lists Pods of all namespaces; a missing right must be reported before that.
        next(iter(api.list_pages(AGENTS, limit=1)))
        next(iter(api.list_pages(AGENT_SETS, agent_set(lease[0]), limit=1)))
        _read(api, lease)
    except ApiError as error:
        if error.status == _FORBIDDEN:
            raise RightsMissing(f"{error.message}: {RESTORE_RIGHTS}; bind it to this account") from error
        raise


def check_mnnvl(api: Api) -> None:
    """Check that ComputeDomains are installed and can be listed: a cluster where MNNVL is enabled has them.

    Raises:
        MNNVLMissing: a kind, or the version that GKM uses, is not served.
        RightsMissing: a request was denied.
        ApiError: the API server does not respond, or not now.
    """
    try:
        missing = presence.missing_kind(api)
    except ApiError as error:
        if error.status == _FORBIDDEN:
            raise RightsMissing(f"{error.message}: {install(Feature.DOMAINS)}, which has the rule") from error
        raise
    if missing:
        raise MNNVLMissing(
            f"MNNVL preflight check failed: MNNVL is enabled but {missing}; install NVIDIA's DRA driver, or set "
            "network.autoMNNVLEnabled to false"
        )


def _read(api: Api, lease: tuple[str, str]) -> None:
    """Read the Lease, which need not exist yet: without that right a replica would wait forever to lead."""
    namespace, name = lease
    api.find(LEASES, name, namespace)
