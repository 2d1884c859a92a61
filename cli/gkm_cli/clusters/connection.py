"""Connect to the cluster of the options, and explain why that is not possible.

Kubeconfig, context and namespace are chosen as kubectl does (client-go, tools/clientcmd). The official client differs:
from several files it takes the current-context of the last one, and kubectl takes the first one's; and in a pod it
ignores ~/.kube/config.
"""

import errno
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from gkm.kube.api import Api
from gkm.kube.errors import NO_RESPONSE, UNAUTHORIZED, ApiError
from gkm.kube.resources import Json, Resource

from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.output import CommandFailed

REQUEST_SECONDS = 10.0
_MAX_PLUGIN_CHARACTERS = 300
NAMESPACES: Resource[Json] = Resource("v1", "Namespace", "namespaces", namespaced=False, type=Json)
_ALWAYS_THERE = "kube-system"
DEFAULT_NAMESPACE = "default"
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_MAX_NAME_BYTES = 253


@dataclass(frozen=True, slots=True)
class ClusterConnection:
    """A connection to a cluster that answers, with the namespace of its context.

    `ahead` is by how much the clock of the API server is ahead of the one here; 0 if it names no time.
    """

    api: Api
    namespace: str
    ahead: timedelta = timedelta(0)

    def now(self) -> datetime:
        """Return the time by the clock of the API server: a laptop's clock may be wrong."""
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
        choice = choose(options.kubeconfig, options.context)
        from gkm.kube.client import connect  # noqa: PLC0415 -- as in `choose`

        api = connect(choice.files, choice.context, timeout=REQUEST_SECONDS)
    except Exception as error:
        hint = "name a kubeconfig with --kubeconfig, and one of its contexts with --context"
        raise CommandFailed(f"the kubeconfig cannot be used: {_cause(error)}; {hint}") from error
    try:
        api.get(NAMESPACES, namespace or _ALWAYS_THERE)
    except ApiError as error:
        _explain(error, namespace, plugin.text)
    return ClusterConnection(api, choice.namespace, _ahead(api.date, datetime.now(UTC)))


def _check_exists(files: str | None) -> None:
    """Refuse a list of files of which none exists; kubectl skips those that are missing."""
    if files is not None and not any(Path(path).exists() for path in files.split(os.pathsep) if path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), files)


def _ahead(date: str, here: datetime) -> timedelta:
    """Return by how much a header Date is ahead of `here`; 0 if it is no date."""
    try:
        there = parsedate_to_datetime(date)
    except (ValueError, TypeError, IndexError, OverflowError):
        return timedelta(0)
    return there - here if there.tzinfo is not None else timedelta(0)


class _PluginFailure(logging.Handler):
    """The last error that the client logs and does not raise: from the program that gets the credentials."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Remember an error; on a terminal, the program has written its own text there."""
        text = record.getMessage()
        self.text = text.removeprefix("exec: ")[:_MAX_PLUGIN_CHARACTERS] if text.startswith("exec: ") else "it failed"


def _cause(error: Exception) -> str:
    """Return why a kubeconfig cannot be used: errors of any type, whose text may quote the file."""
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}"
    from kubernetes.config import ConfigException  # noqa: PLC0415 -- as in `choose`
    from yaml import YAMLError  # noqa: PLC0415 -- as in `choose`

    match error:
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


@dataclass(frozen=True, slots=True)
class KubeconfigSelection:
    """Which kubeconfig files to use (as in $KUBECONFIG; None in a pod), which context and which namespace."""

    files: str | None
    context: str | None
    namespace: str


def choose(
    kubeconfig: str | None, context: str | None, environment: Mapping[str, str] = os.environ
) -> KubeconfigSelection:
    """Return the kubeconfig files, context and namespace that kubectl would use.

    Raises:
        FileNotFoundError: no file exists.
        Exception: of any type, from the official client, for a file of another shape.
    """
    files = _files(kubeconfig, environment)
    if files is None:
        return KubeconfigSelection(None, context, _namespace_of_pod(environment))
    _check_exists(files)
    # A machine without a kubeconfig must not wait for the official client, which imports an OAuth library.
    from kubernetes.config.kube_config import KubeConfigMerger  # noqa: PLC0415

    merged = KubeConfigMerger(files)  # type: ignore[no-untyped-call]
    configs: list[Any] = list(merged.config_files.values())
    chosen = context or next((found for one in configs if (found := one.get("current-context"))), None)
    contexts = [found for one in configs for found in one.get("contexts") or () if found.get("name") == chosen]
    namespace = (contexts[0].get("context") or {}).get("namespace") if contexts else None
    return KubeconfigSelection(files, chosen, str(namespace or DEFAULT_NAMESPACE))


def _files(kubeconfig: str | None, environment: Mapping[str, str]) -> str | None:
    if named := kubeconfig or environment.get("KUBECONFIG"):
        return named
    usual = Path(environment.get("HOME") or Path.home()) / ".kube" / "config"
    return str(usual) if usual.exists() or "KUBERNETES_SERVICE_HOST" not in environment else None


def _namespace_of_pod(environment: Mapping[str, str]) -> str:
    if named := environment.get("POD_NAMESPACE"):
        return named
    try:
        with _POD_NAMESPACE.open(encoding="utf-8") as file:
            return file.read(_MAX_NAME_BYTES).strip() or DEFAULT_NAMESPACE
    except (OSError, UnicodeDecodeError):
        return DEFAULT_NAMESPACE
