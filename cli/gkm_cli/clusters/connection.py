"""Connect to the cluster of the options, and explain why that is not possible."""

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from gkm.kube.api import Api
from gkm.kube.client import connect
from gkm.kube.credentials import UNAUTHORIZED
from gkm.kube.errors import NO_RESPONSE, ApiError
from gkm.kube.resources import Json, Resource
from kubernetes.config import ConfigException
from yaml import YAMLError

from gkm_cli.clusters import kubeconfig
from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.output import CommandFailed

REQUEST_SECONDS = 10.0
_MAX_PLUGIN_CHARACTERS = 300
NAMESPACES: Resource[Json] = Resource("v1", "Namespace", "namespaces", namespaced=False, type=Json)
_ALWAYS_THERE = "kube-system"


@dataclass(frozen=True, slots=True)
class ClusterConnection:
    """The API of a cluster that answers, and the namespace of its context.

    `ahead` is by how much the clock of the API server is ahead of the one here; 0 if it names no time.
    """

    api: Api
    namespace: str
    ahead: timedelta = timedelta(0)

    def now(self) -> datetime:
        """Return the time by the clock of the API server: that of a laptop may be wrong."""
        return datetime.now(UTC) + self.ahead


def connected(options: ClusterOptions, namespace: str = "") -> ClusterConnection:
    """Return a connection to the cluster; `namespace` must exist, if it is given.

    Raises:
        CommandFailed: the kubeconfig cannot be used, no API server answers, or the namespace does not exist.
    """
    # Log records of the client would go to standard error, unescaped.
    plugin = _PluginFailure()
    logging.getLogger().addHandler(plugin)
    try:
        choice = kubeconfig.choose(options.kubeconfig, options.context)
        api = connect(choice.files, choice.context, timeout=REQUEST_SECONDS)
    except Exception as error:
        hint = "name a kubeconfig with --kubeconfig, and one of its contexts with --context"
        raise CommandFailed(f"the kubeconfig cannot be used: {_cause(error)}; {hint}") from error
    try:
        api.get(NAMESPACES, namespace or _ALWAYS_THERE)
    except ApiError as error:
        _explain(error, namespace, plugin.text)
    return ClusterConnection(api, choice.namespace, _ahead(api.date, datetime.now(UTC)))


def _ahead(date: str, here: datetime) -> timedelta:
    """Return by how much a header Date is ahead of `here`; 0 if it is no date."""
    try:
        there = parsedate_to_datetime(date)
    except (ValueError, TypeError, IndexError, OverflowError):
        return timedelta(0)
    return there - here if there.tzinfo is not None else timedelta(0)


class _PluginFailure(logging.Handler):
    """The last error that the client logs and does not raise: that of the program that gets the credentials."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Remember an error; on a terminal, the program has written its own text there."""
        text = record.getMessage()
        self.text = text.removeprefix("exec: ")[:_MAX_PLUGIN_CHARACTERS] if text.startswith("exec: ") else "it failed"


def _cause(error: Exception) -> str:
    """Return why a kubeconfig cannot be used: errors of any type, whose text may quote the file."""
    match error:
        case OSError():
            return f"{error.filename}: {error.strerror}"
        case YAMLError():
            mark = getattr(error, "problem_mark", None)
            return f"it is no YAML{f' (line {mark.line + 1})' if mark else ''}"
        case ConfigException() | ValueError():
            return str(error)
    return f"it has not the form of a kubeconfig ({type(error).__name__})"


def _explain(error: ApiError, namespace: str, plugin: str) -> None:
    """Raise what makes every further request useless; any other answer shows that the API server is there."""
    if error.status == NO_RESPONSE:
        raise CommandFailed(f"{error.message}; check the cluster in the kubeconfig and your network") from error
    if error.status == UNAUTHORIZED and plugin:
        raise CommandFailed(
            f"the API server refuses the credentials, because the program that the kubeconfig names for them failed: "
            f"{plugin}; run that program by itself"
        ) from error
    if error.status == UNAUTHORIZED:
        raise CommandFailed(f"the API server refuses the credentials: {error.message}; log in again") from error
    if error.not_found and namespace:
        raise CommandFailed(f"there is no namespace {namespace}; kubectl get namespaces lists all") from error
