"""The command `gkm-operator provider`: runs one topology provider, the process of its pod.

It has the Secret of its provider as files, and no right but to read what the provider reads and to write its own
ProviderTree. The controllers import no provider.
"""

import argparse
import logging
import os
import resource
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Event
from typing import Any, cast

from gkm.api import msgspec_warmup
from gkm.api.config import Config
from gkm.api.provider_trees import ProviderTreeSpec
from gkm.api.topology_settings import TopologyProvider
from gkm.hoststate.files import UnreadableState, read_bounded
from gkm.hoststate.logs import fields
from gkm.hoststate.pacing import Backoff
from gkm.kube.api import Api
from gkm.kube.client import connect
from gkm.kube.errors import ApiError
from gkm.kube.secrets import own_namespace
from gkm.topology.provider_trees import InvalidTree, unpack
from gkm.topology.providers import Provider, ProviderFactory, ProviderFailed

from gkm_operator import metrics
from gkm_operator.health import health_server
from gkm_operator.hypernodes.providers.channel import ProviderChannel
from gkm_operator.hypernodes.providers.cluster_watch import ClusterSources
from gkm_operator.hypernodes.providers.runner import ProviderRunner, RunnerPace, TreeObject
from gkm_operator.hypernodes.providers.view import Kind, LiveView

_LOG = logging.getLogger(__name__)


_PACKAGE = "gkm_operator.hypernodes.providers"
BUILT_IN: Mapping[str, str] = {
    "infiniband": f"{_PACKAGE}.infiniband:provider",
    "lldp": f"{_PACKAGE}.lldp:provider",
    "ufm": f"{_PACKAGE}.ufm:provider",
    "tree-file": f"{_PACKAGE}.tree_file:provider",
}
_READS: Mapping[str, frozenset[Kind]] = {
    "infiniband": frozenset({"Node", "Ports", "Survey"}),
    "lldp": frozenset({"Node", "Neighbors"}),
    "ufm": frozenset({"Node", "Ports"}),
    "tree-file": frozenset({"Node"}),
}
# Providers of others see the GUIDs of Nodes, and would lose nodes without them.
_OTHERS_READ: frozenset[Kind] = frozenset({"HyperNode", "Node", "Ports"})


def reads(reference: str) -> frozenset[Kind]:
    """Return the kinds of cluster objects that a provider reads; `reference` is its name or `module:attribute`."""
    return _READS.get(reference, _OTHERS_READ)


def factory(reference: str, path: str = "") -> ProviderFactory:
    """Return the factory of a provider; `reference` is the name of a built-in provider, or `module:attribute`.

    Modules in the directory `path` can be imported as well; packages of ours win over them.

    Raises:
        ProviderFailed: the module cannot be imported.
    """
    if path:
        # Behind ours: a package of a provider must not replace what this process runs on.
        sys.path.append(path)
    target = BUILT_IN.get(reference, reference)
    module, _, attribute = target.partition(":")
    if not module or not attribute:
        known = ", ".join(sorted(BUILT_IN))
        raise ProviderFailed(f"has no class: --class must be module:Class, or one of {known}")
    try:
        return cast("ProviderFactory", getattr(import_module(module), attribute))
    except (ImportError, AttributeError) as error:
        where = f"the image or {path}" if path else "the image; --path names no directory"
        raise ProviderFailed(f"cannot be imported as {target} from {where}: {type(error).__name__}") from error


PROGRAM = "gkm-operator-provider"
MAX_CREDENTIAL_BYTES = 1 << 20
"""Limit of bytes of the credentials: the data of a Secret has at most as much (core/v1, MaxSecretSize)."""
_FILES_BYTES = 32 << 20
_BACKOFF = Backoff(1.0, 30.0)


class NotConfigured(RuntimeError):
    """The configuration has no provider of this name."""


def run(arguments: argparse.Namespace, config: Config, stop: Event) -> int:
    """Run the provider until `stop` or its failure; return the exit code of the process.

    Raises:
        NotConfigured: `topology.providers` does not name the provider.
    """
    metrics.record_build(PROGRAM)
    settings = _settings(arguments.name, config)
    limit_memory(arguments.max_memory_bytes)
    api = connect(arguments.kubeconfig, arguments.context, metrics.api_answered)
    msgspec_warmup.warm_up()
    tree = TreeObject(api, arguments.name)
    running: list[ProviderRunner] = []
    # Before the first request to the API server: while that is away, a restart by kubelet would not help.
    health = health_server(
        arguments.health,
        lambda: any(runner.has_written for runner in running),
        lambda: all(runner.is_alive for runner in running),
    )
    metrics.READY.labels(PROGRAM).set_function(lambda: any(runner.has_written for runner in running))
    health.start()
    if (earlier := _earlier(tree, stop)) is None:
        return 0
    code = ProviderCode(arguments.reference or arguments.name, arguments.path, arguments.credentials)
    runner = runner_of(api, config, settings, code, tree=tree, earlier=earlier)
    threading.excepthook = lambda caught: runner.fail(caught.exc_value)
    running.append(runner)
    status = runner.run(stop)
    logging.shutdown()
    # Threads of the provider may still run, and must not hold the process.
    os._exit(status)


@dataclass(frozen=True, slots=True)
class ProviderCode:
    """Where the code of a provider is: its class, the directory of its modules ("" for none), and of its Secret."""

    reference: str
    path: str = ""
    credentials: Path | None = None

    def make(self, config: Mapping[str, Any]) -> Provider:
        """Create the provider with its `config` and credentials.

        Raises:
            ProviderFailed: the code cannot be imported, or the Secret cannot be read. The provider may raise any other
                exception.
        """
        return factory(self.reference, self.path)(config, _credentials(self.credentials))


def runner_of(
    api: Api,
    config: Config,
    settings: TopologyProvider,
    code: ProviderCode,
    *,
    tree: TreeObject,
    earlier: ProviderTreeSpec,
    pace: RunnerPace = RunnerPace(),  # noqa: B008 -- a frozen value
) -> ProviderRunner:
    """Return the runner of a provider; `earlier` is the spec that an earlier process wrote to `tree`."""
    view = LiveView(_names(earlier))
    sources = ClusterSources(api, config, view, namespace=own_namespace(), reads=reads(code.reference))
    return ProviderRunner(
        settings.name,
        partial(code.make, settings.config),
        tree=tree,
        channel=ProviderChannel(earlier),
        view=view,
        sources=sources,
        stale=settings.stale_seconds,
        pace=pace,
    )


def _settings(name: str, config: Config) -> TopologyProvider:
    for provider in config.topology.providers:
        if provider.name == name:
            return provider
    raise NotConfigured(f"topology.providers has no {name!r}: add it at the place of its trust, or remove its pod")


def _earlier(tree: TreeObject, stop: Event) -> ProviderTreeSpec | None:
    """Return what an earlier process wrote; None if `stop` comes first."""
    failures = 0
    while not stop.is_set():
        try:
            return tree.read()
        except ApiError as error:
            failures += 1
            _LOG.warning("ProviderTree not read, tried again", extra=fields(failures=failures, why=str(error)))
            stop.wait(_BACKOFF.pause(failures, error.retry_after))
    return None


def _names(earlier: ProviderTreeSpec) -> frozenset[str]:
    """Return the names that the provider's HyperNodes had: a restart must not rename them."""
    try:
        return frozenset(each.name for each in unpack(earlier.tree).hypernodes) if earlier.tree else frozenset()
    except InvalidTree as error:
        _LOG.warning(
            "tree saved in the ProviderTree is damaged, HyperNodes may get new names", extra=fields(why=str(error))
        )
        return frozenset()


def _credentials(directory: Path | None) -> Mapping[str, bytes]:
    """Return the files of a mounted Secret by their names.

    Raises:
        ProviderFailed: one cannot be read.
    """
    if directory is None:
        return {}
    try:
        # kubelet's own links begin with two dots.
        names = [path.name for path in directory.iterdir() if not path.name.startswith("..")]
        return {name: read_bounded((directory / name).resolve(), MAX_CREDENTIAL_BYTES) for name in names}
    except (OSError, UnreadableState) as error:
        raise ProviderFailed(f"has no credentials: {type(error).__name__}; does its Secret exist?") from None


def limit_memory(limit: int) -> None:
    """Limit this process's memory so that an allocation fails before the kernel kills the container."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if limit:
        value = limit - min(_FILES_BYTES, limit // 4)
        resource.setrlimit(resource.RLIMIT_DATA, (value, value))
