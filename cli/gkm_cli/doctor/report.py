"""The results as a table for people, and as a list for programs (docs/reference/doctor.md)."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from gkm.api.grammar import count_of

from gkm_cli.doctor.findings import Finding, Severity
from gkm_cli.doctor.runner import Result
from gkm_cli.output import line, table

MAX_ROWS = 100
_GOOD = (Severity.OK, Severity.WARNING)
_WORST_FIRST = (Severity.PROBLEM, Severity.NOT_CHECKED, Severity.WARNING, Severity.OK)


def as_list(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return the results for programs. `ok` is false for a problem, and where nothing is known."""
    return [
        {
            "check": result.check,
            "ok": result.finding.severity in _GOOD,
            "severity": result.finding.severity.value,
            "object": result.finding.object,
            "detail": result.finding.detail,
            "why": result.finding.why,
            "hint": result.finding.hint,
        }
        for result in results
    ]


def print_results(results: Sequence[Result], left_out: Sequence[str]) -> None:
    """Print the worst results first, then their causes, and a summary. `left_out` are the checks without a result.

    Causes and next steps are not in the table, which would break the commands in them into several lines.
    """
    ordered = sorted(results, key=lambda result: _WORST_FIRST.index(result.finding.severity))
    shown = [(result.check, result.finding) for result in ordered[:MAX_ROWS]]
    rows = [(found.severity.value, check, found.object or found.detail) for check, found in shown]
    table(("result", "check", "about"), rows)
    if len(ordered) > MAX_ROWS:
        line(f"... and {len(ordered) - MAX_ROWS} more; -o json has all")
    for check, found in shown:
        if found.severity is not Severity.OK:
            _print_cause(check, found)
    line("")
    line(_summary(results))
    if left_out:
        line(f"left out, because they need the whole cluster: {', '.join(left_out)}")


def _print_cause(check: str, finding: Finding) -> None:
    line("")
    line(f"{finding.severity.value}: {finding.object or check}: {finding.detail}")
    for label, text in (("why", finding.why), ("next", finding.hint)):
        if text:
            line(f"  {label}: {text}")


def _summary(results: Sequence[Result]) -> str:
    counts = Counter(result.finding.severity for result in results)
    checks = count_of(len({result.check for result in results}), "check")
    problems = count_of(counts[Severity.PROBLEM], "problem")
    return (
        f"{checks}: {problems}, {count_of(counts[Severity.WARNING], 'warning')}, "
        f"{counts[Severity.NOT_CHECKED]} not checked"
    )
