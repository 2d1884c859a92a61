"""A release of the chart in a cluster of the tests, by the real Helm."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support.chart.helm import CHART, Object, Values, helm
from support.cluster.cluster import Cluster

RELEASE = "gkm"


@dataclass(frozen=True)
class Release:
    """Installs and removes the chart; no pod of it runs where the cluster has no node."""

    cluster: Cluster
    namespace: str = "default"
    chart: Path = CHART
    hooks: bool = False
    """Whether Helm runs the checks before an upgrade or removal, which needs a node."""

    def install(self, values: Values | None = None, files: Sequence[Path] = (), options: Sequence[str] = ()) -> str:
        """Install, or upgrade what is there to exactly these values; return what Helm printed."""
        words = [word for file in files for word in ("--values", file)]
        made = ("--create-namespace",) if self.namespace != "default" else ()
        how = ("--install", "--reset-values", *self._hooks, *made, *options)
        return self._helm("upgrade", RELEASE, self.chart, *how, *words, values=values or {})

    def uninstall(self, *options: str) -> str:
        return self._helm("uninstall", RELEASE, "--wait", *self._hooks, *options)

    def values(self) -> Object:
        """Return the values that the release was installed with."""
        found: Object = json.loads(self._helm("get", "values", RELEASE, "--output", "json"))
        return found

    @property
    def _hooks(self) -> tuple[str, ...]:
        return () if self.hooks else ("--no-hooks",)

    def _helm(self, *words: str | Path, values: Values | None = None) -> str:
        where = ("--kubeconfig", self.cluster.kubeconfig, "--namespace", self.namespace)
        return helm(*words, *where, values=values)


def packaged(version: str, directory: Path) -> Path:
    """Return the chart of this checkout as a package of another version, whose images have it as their tag."""
    helm("package", CHART, "--version", version, "--app-version", version, "--destination", directory)
    return directory / f"gkm-{version}.tgz"
