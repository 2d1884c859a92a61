"""The node report: the agent of the node reports this cache."""

from gkm_cli.why.facts import Facts
from gkm_cli.why.outcome import Broken, Holds, Outcome, kubectl


def decide(facts: Facts) -> Outcome:
    """Decide about the node report."""
    name = facts.pod.spec.node_name
    kind = "GKMCacheNode" if facts.cache_name and facts.cache_name.namespace is not None else "ClusterGKMCacheNode"
    if facts.on_node is not None:
        return Holds(f"{kind} {name}: {facts.on_node.state}")
    if selector := facts.existing_cache.spec.node_selector:
        labels = ", ".join(f"{key}={value}" for key, value in sorted(selector.items()))
        node = kubectl("get", "node", name, "--show-labels")
        hint = f"compare the node's labels with spec.nodeSelector of the cache ({labels}): {node}"
    else:
        pods = kubectl("get", "pods", "-n", "gkm-system", "-o", "wide", f"--field-selector=spec.nodeName={name}")
        hint = f"see whether gkm-agent runs there, and read its log: {pods}"
    return Broken(f"the agent of {name} does not report {facts.named}", hint)
