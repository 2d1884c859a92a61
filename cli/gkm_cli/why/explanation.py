"""The steps of `gkm why`: connect, read, walk, print, and choose the exit code."""

from collections.abc import Sequence
from typing import Any

from gkm_cli.clusters.connection import connected
from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.output import CommandFailed, NegativeResult, Output, line, show, table
from gkm_cli.progress import waiting
from gkm_cli.why.observation import observe
from gkm_cli.why.unmounted import no_volume
from gkm_cli.why.walk import LinkResult, State, walk

_PREFIXES = ("pod/", "pods/", "po/")


def explain(name: str, cluster: ClusterOptions, namespace: str, output: Output) -> None:
    """Print every link, and the first broken one with what to do.

    Raises:
        CommandFailed: there is no such pod, or no link is broken and some could not be checked.
        NegativeResult: a link is broken.
    """
    connection = connected(cluster, namespace)
    where = namespace or connection.namespace
    plain = next((name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix)), name)
    with waiting(f"reading pod {plain}"):
        pod, facts = observe(connection.api, plain, where)
    steps = [step for each in facts for step in walk(each)] or [no_volume(pod)]
    show([_entry(step) for step in steps], output, lambda: _print_steps(steps))
    _conclude(steps)


def _entry(step: LinkResult) -> dict[str, Any]:
    return {
        "check": step.link,
        "ok": step.state is State.OK,
        "state": step.state.value,
        "volume": step.volume,
        "detail": step.detail,
        "hint": step.hint,
    }


def _print_steps(steps: Sequence[LinkResult]) -> None:
    several = len({step.volume for step in steps}) > 1
    rows = [(step.volume, step.link, step.state.value, step.detail if step.state is State.OK else "") for step in steps]
    columns = ("volume", "link", "state", "detail")
    table(columns if several else columns[1:], rows if several else [row[1:] for row in rows])
    # One object that cannot be read leaves several links unchecked.
    for (state, detail, hint), links in _grouped(steps).items():
        line("")
        line(f"{state.value}: {', '.join(links)}: {detail}")
        line(f"  next: {hint}")
    if all(step.state is State.OK for step in steps):
        line("")
        line("every link holds")


def _grouped(steps: Sequence[LinkResult]) -> dict[tuple[State, str, str], list[str]]:
    """Return the links with a next step, by the text that is printed about them."""
    found: dict[tuple[State, str, str], list[str]] = {}
    for step in steps:
        links = found.setdefault((step.state, step.detail, step.hint), []) if step.hint else []
        if step.link not in links:
            links.append(step.link)
    return found


def _conclude(steps: Sequence[LinkResult]) -> None:
    if any(step.state is State.BROKEN for step in steps):
        raise NegativeResult
    unknown = [step.link for step in steps if step.state is State.NOT_CHECKED]
    if unknown:
        raise CommandFailed(f"not every link could be checked: {', '.join(unknown)}; see their next steps")
