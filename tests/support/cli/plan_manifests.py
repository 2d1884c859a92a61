"""The Jobs that `gkm plan -o manifests` prints, and a plan whose groups have nodes of different sizes."""

import subprocess

import yaml
from support.cli.plan_files import Json, PlanWorkspace, listed, node, run


def jobs(done: subprocess.CompletedProcess[str]) -> list[Json]:
    return list(yaml.load_all(done.stdout, yaml.CSafeLoader))


def only_on(job: Json) -> set[str]:
    affinity = job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return {name for term in terms for field in term["matchFields"] for name in field["values"]}


def uneven(workspace: PlanWorkspace, name: str) -> tuple[Json, list[Json]]:
    """Return the plan and the Jobs of three groups of two pods of 4 GPUs, on two nodes of 12.

    Two of them have a node each, the third has what they leave, a pod on each: its Job comes first here.
    """
    nodes = workspace.write("nodes.json", listed(node(f"{name}-0", name, gpus=12), node(f"{name}-1", name, gpus=12)))
    run_file = workspace.write("asks.json", run(name, gpus=24, groupGPUs=8, gpusPerPod=4))
    _, plan = workspace.plan(nodes=nodes, run=run_file)
    made = jobs(workspace.run_plan("-o", "manifests", nodes=nodes, run=run_file))
    return plan, sorted(made, key=lambda job: -len(only_on(job)))
