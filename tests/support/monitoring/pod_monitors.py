"""PodMonitors as the scrape configurations that the Prometheus operator makes of them, and pods as targets; pure.

Only the fields that ours have. The labels that every target gets (job, namespace, pod, container, endpoint) are those
of the operator's documentation. Debian builds Prometheus without the discovery of Kubernetes: `discovered` makes its
targets, with the labels of Prometheus' documentation, and Prometheus selects and relabels.
"""

import re
from typing import Any

Json = dict[str, Any]
KNOWN = {"selector", "podMetricsEndpoints"}
KNOWN_OF_AN_ENDPOINT = {"port", "path", "relabelings"}
META = "__meta_kubernetes_pod_"


def scrape_configs(monitor: Json, targets: list[Json]) -> list[Json]:
    """Return the scrape configuration of each endpoint of a PodMonitor; `targets` are all ports of all pods.

    Raises:
        ValueError: it has a field that is not translated here.
    """
    spec, metadata = monitor["spec"], monitor["metadata"]
    if unknown := spec.keys() - KNOWN or spec["selector"].keys() - {"matchLabels"}:
        raise ValueError(f"PodMonitor {metadata['name']}: {sorted(unknown)}")
    name = f"{metadata['namespace']}/{metadata['name']}"
    found = []
    for endpoint in spec["podMetricsEndpoints"]:
        if unknown := endpoint.keys() - KNOWN_OF_AN_ENDPOINT:
            raise ValueError(f"PodMonitor {metadata['name']}: {sorted(unknown)}")
        labels = [
            _keep(f"{META}label_{_sanitized(key)}", text) for key, text in spec["selector"]["matchLabels"].items()
        ]
        found.append(
            {
                "job_name": name,
                "metrics_path": endpoint["path"],
                "static_configs": targets,
                "relabel_configs": [
                    _keep("__meta_kubernetes_namespace", metadata["namespace"]),
                    *labels,
                    _keep(f"{META}container_port_name", endpoint["port"]),
                    _label("__meta_kubernetes_namespace", "namespace"),
                    _label(f"{META}name", "pod"),
                    _label(f"{META}container_name", "container"),
                    {"target_label": "endpoint", "replacement": endpoint["port"]},
                    *(_relabeling(each) for each in endpoint.get("relabelings", [])),
                ],
            }
        )
    return found


def discovered(pods: list[Json]) -> list[Json]:
    """Return every port of every container as a target, as the role `pod` of kubernetes_sd_configs does."""
    found = []
    for pod in pods:
        metadata, spec, address = pod["metadata"], pod["spec"], pod["status"]["podIP"]
        labels = {f"{META}label_{_sanitized(key)}": value for key, value in metadata["labels"].items()} | {
            "__meta_kubernetes_namespace": metadata["namespace"],
            f"{META}name": metadata["name"],
            f"{META}node_name": spec["nodeName"],
            f"{META}ip": address,
        }
        for container in spec["containers"]:
            for port in container.get("ports", ()):
                own = {f"{META}container_name": container["name"], f"{META}container_port_name": port["name"]}
                found.append({"targets": [f"{address}:{port['containerPort']}"], "labels": labels | own})
    return found


def _sanitized(key: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", key)


def _keep(source: str, value: str) -> Json:
    return {"action": "keep", "source_labels": [source], "regex": re.escape(value)}


def _label(source: str, target: str) -> Json:
    return {"source_labels": [source], "target_label": target}


def _relabeling(each: Json) -> Json:
    names = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    return {names[key]: value for key, value in each.items()}
