"""The steps of `gkm why`: connect, choose the pods, read, walk, print, and choose the exit code."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gkm.api.grammar import count_of, listed

from gkm_cli.clusters.connection import connected
from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.output import CommandFailed, NegativeResult, Output, line, show, table
from gkm_cli.progress import waiting
from gkm_cli.why import image_volumes
from gkm_cli.why.facts import PodFacts
from gkm_cli.why.links import LinkResult, State, walk
from gkm_cli.why.observation import Observation
from gkm_cli.why.options import PodChoice
from gkm_cli.why.targets import check, chosen, is_one_pod
from gkm_cli.why.unmounted import no_volume

_MAX_NAMES = 5
_WORST = (State.BROKEN, State.NOT_CHECKED, State.OK)


@dataclass(frozen=True, slots=True)
class WalkedPod:
    """A pod, and the result of each link between it and the kernels of its caches, for each of its volumes."""

    pod: PodFacts
    steps: list[LinkResult]

    @property
    def state(self) -> State:
        """Return the worst state of the pod's links."""
        states = {step.state for step in self.steps}
        return next(state for state in _WORST if state in states)


def explain(target: str, cluster: ClusterOptions, choice: PodChoice, output: Output) -> None:
    """Print every link of the chosen pods, and each broken one with what to do.

    Raises:
        UsageError: the target is of a kind without pods, or contradicts the choice.
        CommandFailed: there is no such pod, or no link is broken and some could not be checked.
        NegativeResult: a link is broken.
    """
    check(target, choice)
    connection = connected(cluster, choice.namespace)
    where = "" if choice.all_namespaces else choice.namespace or connection.namespace
    with waiting(f"reading {target or 'pods'}"):
        found = chosen(connection.api, target, where, choice.labels)
        observation = Observation(connection.api)
        walked = [WalkedPod(pod, _steps(observation, pod)) for pod in found.pods]
    entries = [_entry(one.pod, step) for one in walked for step in one.steps]
    show(entries, output, lambda: _print(walked, target, where))
    conclude([step for one in walked for step in one.steps], found.more)


def _steps(observation: Observation, pod: PodFacts) -> list[LinkResult]:
    by_image = observation.image_facts(pod)
    steps = [step for each in observation.facts(pod) for step in walk(each)]
    steps += [step for each in by_image for step in walk(each, image_volumes.LINKS, image_volumes.NEEDS)]
    return steps or [no_volume(pod)]


def _entry(pod: PodFacts, step: LinkResult) -> dict[str, Any]:
    return {
        "namespace": pod.metadata.namespace,
        "pod": pod.metadata.name,
        "check": step.link,
        "ok": step.state is State.OK,
        "state": step.state.value,
        "volume": step.volume,
        "detail": step.detail,
        "hint": step.hint,
    }


def _print(walked: Sequence[WalkedPod], target: str, namespace: str) -> None:
    if not walked:
        where = f"of the namespace {namespace}" if namespace else "of the cluster"
        line(f"no pod {where} waits or fails for a volume of GKM")
    elif len(walked) == 1:
        if not is_one_pod(target):
            line(f"pod {_name(walked[0].pod)}")
        _print_steps(walked[0].steps)
    else:
        _print_pods(walked)
    if walked:
        _print_next(walked)


def _print_steps(steps: Sequence[LinkResult]) -> None:
    several = len({step.volume for step in steps}) > 1
    rows = [(step.volume, step.link, step.state.value, step.detail if step.state is State.OK else "") for step in steps]
    columns = ("volume", "link", "state", "detail")
    table(columns if several else columns[1:], rows if several else [row[1:] for row in rows])


def _print_pods(walked: Sequence[WalkedPod]) -> None:
    rows = []
    for one in walked:
        links = dict.fromkeys(step.link for step in one.steps if step.state is one.state is not State.OK)
        rows.append((_name(one.pod), one.pod.spec.node_name, one.state.value, ", ".join(links)))
    table(("pod", "node", "state", "links"), rows)


def _print_next(walked: Sequence[WalkedPod]) -> None:
    # One object that cannot be read leaves several links unchecked, and one fault breaks several pods.
    for (state, detail, hint), found in _grouped(walked).items():
        line("")
        line(f"{state.value}: {', '.join(dict.fromkeys(link for link, _ in found))}: {detail}")
        if len(walked) > 1:
            line(f"  pods: {listed(list(dict.fromkeys(pod for _, pod in found)), _MAX_NAMES)}")
        line(f"  next: {hint}")
    if all(one.state is State.OK for one in walked):
        line("")
        line("every link holds")


def _grouped(walked: Sequence[WalkedPod]) -> dict[tuple[State, str, str], list[tuple[str, str]]]:
    """Return the links with a next step, and their pods, by the text that is printed about them."""
    found: dict[tuple[State, str, str], list[tuple[str, str]]] = {}
    for one in walked:
        for step in one.steps:
            if step.hint:
                found.setdefault((step.state, step.detail, step.hint), []).append((step.link, _name(one.pod)))
    return found


def _name(pod: PodFacts) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def conclude(steps: Sequence[LinkResult], more: int) -> None:
    """Choose the exit code of `gkm why`: the worst of all links; `more` pods were not looked at.

    Raises:
        NegativeResult: a link is broken.
        CommandFailed: a link could not be checked, or there are more pods.
    """
    if more:
        sys.stderr.write(f"{count_of(more, 'more pod')}: name one, or select some with -l\n")
    if any(step.state is State.BROKEN for step in steps):
        raise NegativeResult
    unknown = dict.fromkeys(step.link for step in steps if step.state is State.NOT_CHECKED)
    if unknown:
        raise CommandFailed(f"not every link could be checked: {', '.join(unknown)}; see their next steps")
    if more:
        raise CommandFailed(f"{count_of(more, 'pod')} not looked at; name one, or select some with -l")
