"""Nodes and pods of a large cluster as `kubectl get -o json` prints them: 10 kB a node, 5 kB a pod. Both are made up.

A node looks like one with feature discovery and the node problem detector: some forty labels, seven
conditions, and images. Pods are those of batch jobs.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gkm.packing.values import Node

GPU = "nvidia.com/gpu"
FLAVOR = "NVIDIA-H100-80GB-HBM3"
_NAME, _PLACE = "@name@", ("@region@", "@cluster@", "@block@", "@domain@")
_GPUS = "@gpus@"
_CPU_FEATURES = 24
_TIME = "2026-01-05T07:04:31Z"
_HEAD, _TAIL = '{\n    "apiVersion": "v1",\n    "items": [\n', '\n    ],\n    "kind": "List",\n    "metadata": {\n'
_END = '        "resourceVersion": ""\n    }\n}\n'


def write_nodes(path: Path, nodes: Sequence[Node]) -> int:
    """Write a list of nodes; return its size in bytes."""
    template = _indented(_node())
    return _write(path, (_filled(template, node, node.total) for node in nodes))


def write_pods(path: Path, nodes: Sequence[Node]) -> int:
    """Write a list with a pod on each node of which something is used: it takes that; return its size in bytes."""
    template = _indented(_pod())
    return _write(path, (_filled(template, node, node.total - node.free) for node in nodes if node.free < node.total))


def _write(path: Path, items: Iterator[str]) -> int:
    with path.open("w") as file:
        file.write(_HEAD + next(items, ""))
        for item in items:
            file.write(",\n" + item)
        file.write(_TAIL + _END)
    return path.stat().st_size


def _filled(template: str, node: Node, gpus: int) -> str:
    text = template.replace(_NAME, node.name).replace(_GPUS, str(gpus))
    for token, value in zip(_PLACE, node.place, strict=True):
        text = text.replace(token, value)
    return text


def _indented(value: Mapping[str, Any]) -> str:
    return "\n".join(" " * 8 + line for line in json.dumps(value, indent=4, sort_keys=True).splitlines())


def _node() -> dict[str, Any]:
    resources = {"cpu": "192", "ephemeral-storage": "7499764Mi", "hugepages-2Mi": "0", "memory": "2113442916Ki"}
    resources |= {GPU: _GPUS, "pods": "250", "rdma/hca": "8"}
    conditions = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"]
    conditions += ["KernelDeadlock", "XidErrors"]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "annotations": {
                "csi.volume.kubernetes.io/nodeid": f'{{"csi.gkm.io":"{_NAME}","nfs.csi.k8s.io":"{_NAME}"}}',
                "kubeadm.alpha.kubernetes.io/cri-socket": "unix:///run/containerd/containerd.sock",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
            "creationTimestamp": _TIME,
            "labels": _labels(),
            "name": _NAME,
            "resourceVersion": "48213377",
            "uid": "6f0b1f43-6d30-4d6a-9d4f-0f0a1b2c3d4e",
        },
        "spec": {
            "podCIDR": "10.200.17.0/24",
            "podCIDRs": ["10.200.17.0/24"],
            "providerID": f"metal://{_NAME}",
            "taints": [{"effect": "NoSchedule", "key": GPU, "value": "present"}],
        },
        "status": {
            "addresses": [{"address": "10.12.7.31", "type": "InternalIP"}, {"address": _NAME, "type": "Hostname"}],
            "allocatable": resources,
            "capacity": resources,
            "conditions": [_condition(name) for name in conditions],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "images": [_image(number) for number in range(6)],
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": "0f6d8c1e-6a0e-4a39-8c4e-5f3f2e1d0c9b",
                "containerRuntimeVersion": "containerd://2.1.4",
                "kernelVersion": "6.8.0-79-generic",
                "kubeletVersion": "v1.34.1",
                "operatingSystem": "linux",
                "osImage": "Ubuntu 24.04.3 LTS",
            },
        },
    }


def _labels() -> dict[str, str]:
    cpu = [f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{number}" for number in range(_CPU_FEATURES)]
    gpu = {
        f"nvidia.com/{key}": "1"
        for key in ("cuda.driver.major", "cuda.driver.minor", "gfd.timestamp", "gpu.count", "gpu.memory", "mig.capable")
    }
    deployed = {f"nvidia.com/gpu.deploy.{name}": "true" for name in ("dcgm", "driver", "gds", "operator-validator")}
    region, cluster, block, domain = _PLACE
    return {
        **dict.fromkeys(cpu, "true"),
        **gpu,
        **deployed,
        "nvidia.com/gpu.product": FLAVOR,
        "kubernetes.io/hostname": _NAME,
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/region": region,
        "cluster": cluster,
        "topology.gkm.io/block": block,
        "gkm.io/fabric-domain": domain,
        "gkm.io/fabric-health": "healthy",
    }


def _condition(name: str) -> dict[str, str]:
    return {
        "lastHeartbeatTime": _TIME,
        "lastTransitionTime": _TIME,
        "message": f"kubelet or the problem detector says of {name} that all is well",
        "reason": f"{name}IsAsItShouldBe",
        "status": "True" if name == "Ready" else "False",
        "type": name,
    }


def _image(number: int) -> dict[str, Any]:
    digest = f"{number:02x}" * 32
    return {"names": [f"registry.example/team/image@sha256:{digest}"], "sizeBytes": 1_000_000_007 + number}


def _pod() -> dict[str, Any]:
    limits = {GPU: _GPUS, "cpu": "32", "memory": "512Gi", "rdma/hca": "8"}
    mounts = [{"mountPath": f"/mnt/{number}", "name": f"volume-{number}"} for number in range(4)]
    container = {
        "env": [{"name": f"NCCL_SETTING_{number}", "value": "1"} for number in range(6)],
        "image": "registry.example/team/training:2026.1",
        "imagePullPolicy": "IfNotPresent",
        "name": "worker",
        "resources": {"limits": limits, "requests": limits},
        "volumeMounts": mounts,
    }
    conditions = [_condition(name) for name in ("Ready", "PodScheduled")]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": {"job-name": "train"}, "name": f"worker-on-{_NAME}", "namespace": "ml", "uid": _NAME},
        "spec": {
            "containers": [container],
            "nodeName": _NAME,
            "tolerations": [{"effect": "NoSchedule", "key": GPU, "operator": "Exists"}],
            "volumes": [{"emptyDir": {}, "name": f"volume-{number}"} for number in range(4)],
        },
        "status": {"conditions": conditions, "phase": "Running", "podIP": "10.200.17.9", "startTime": _TIME},
    }
