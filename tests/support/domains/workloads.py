"""Workloads with ComputeDomains on a DraCluster: GKM's controllers and admission, and Grove's part by the driver."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gkm.api.mnnvl_metadata import MNNVL_READY, PODS_USING
from support.domains.dra_cluster import DraCluster
from support.domains.gkm import Gkm
from support.grove import kinds
from support.grove.driver import GroveDriver
from support.grove.installation import operator_api

Json = dict[str, Any]


@dataclass(frozen=True)
class Workloads:
    """A cluster in which GKM and Grove's part run."""

    dra: DraCluster
    gkm: Gkm

    @classmethod
    @contextmanager
    def running(cls, dra: DraCluster, directory: Path) -> Iterator["Workloads"]:
        """Install Grove's kinds and GKM, and start everything; it ends with the block."""
        dra.cluster.apply(kinds.GROVE)
        with Gkm.installed(dra.cluster, directory) as gkm:
            gkm.controllers()
            gkm.admission()
            driver = GroveDriver(operator_api(dra.cluster), pods=True)
            driver.start()
            try:
                yield cls(dra, gkm)
            finally:
                driver.close()

    def scale(self, name: str, namespace: str, replicas: int) -> None:
        """Change the replicas of a PodCliqueSet."""
        words = ("scale", "podcliqueset", name, "--namespace", namespace, f"--replicas={replicas}")
        self.dra.cluster.kubectl(*words)

    def delete(self, kind: str, name: str, namespace: str, *more: str) -> None:
        """Delete an object, and do not wait.

        Raises:
            KubectlFailed: it was refused.
        """
        self.dra.cluster.kubectl("delete", kind, name, "--namespace", namespace, "--wait=false", *more)

    def domains(self, namespace: str) -> list[str]:
        """Return the names of the ComputeDomains."""
        return sorted(one["metadata"]["name"] for one in self.dra.cluster.objects.every("computedomains", namespace))

    def until_domains(self, namespace: str, *names: str) -> None:
        """Wait until there are these ComputeDomains and no others."""
        self.dra.cluster.until(lambda: self.domains(namespace) == sorted(names), f"the ComputeDomains {names}")

    def until_running(self, namespace: str, count: int) -> list[Json]:
        """Wait until so many pods run and there are no others; return them."""

        def probe() -> list[Json] | None:
            pods = self.dra.cluster.objects.every("pods", namespace)
            running = [pod for pod in pods if pod.get("status", {}).get("phase") == "Running"]
            return running if len(running) == len(pods) == count else None

        return self.dra.cluster.until(probe, f"{count} pods to run") if count else probe() or []

    def until_marked(self, name: str, namespace: str, count: int) -> None:
        """Wait until a domain and its claim template have the mark of so many pods."""
        found = (self.dra.domain, self.dra.template)
        self.dra.cluster.until(
            lambda: all(_annotation(read(name, namespace), PODS_USING) == str(count) for read in found),
            f"the mark {count} on {name}",
        )

    def until_condition(self, name: str, namespace: str, reason: str, pods: int = 0) -> Json:
        """Wait until the condition MNNVLReady of a domain has a reason, and counts `pods` if given; return it."""

        def probe() -> Json | None:
            found: Json = json.loads(_annotation(self.dra.domain(name, namespace), MNNVL_READY) or "{}")
            return found if found.get("reason") == reason and pods in (0, found.get("expected")) else None

        return self.dra.cluster.until(probe, f"MNNVLReady of {name} to be {reason} for {pods} pods")


def _annotation(found: Json, key: str) -> str:
    return str(found.get("metadata", {}).get("annotations", {}).get(key, ""))
