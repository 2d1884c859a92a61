"""Choose kubeconfig, context and namespace as kubectl does (client-go, tools/clientcmd).

The official client differs: of several files it takes the current-context of the last one, kubectl that of the first;
and in a pod it ignores ~/.kube/config.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes.config.kube_config import KubeConfigMerger

DEFAULT_NAMESPACE = "default"
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_MAX_NAME_BYTES = 253


@dataclass(frozen=True, slots=True)
class KubeconfigSelection:
    """The files of a kubeconfig in the form of $KUBECONFIG, None for those of the pod; a context, and a namespace."""

    files: str | None
    context: str | None
    namespace: str


def choose(
    kubeconfig: str | None, context: str | None, environment: Mapping[str, str] = os.environ
) -> KubeconfigSelection:
    """Return what kubectl would use with the options --kubeconfig and --context.

    Raises:
        Exception: of any type, from the official client, for a file of another shape.
    """
    files = _files(kubeconfig, environment)
    if files is None:
        return KubeconfigSelection(None, context, _namespace_of_pod(environment))
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
