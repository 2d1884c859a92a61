"""`gkm topology check`: read, check, print."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gkm.api.grammar import count_of, listed
from msgspec import to_builtins

from gkm_cli.inputs import files
from gkm_cli.inputs.cluster_lists import read_nodes
from gkm_cli.output import NegativeResult, line, show
from gkm_cli.topology import hygiene
from gkm_cli.topology.hygiene import Hygiene, LabelSeverity
from gkm_cli.topology.options import CheckOutput

_MAX_LISTED = 8
Json = dict[str, Any]


def print_findings(nodes: Sequence[Path], config: Path | None, output: CheckOutput) -> None:
    """Print the faults of the nodes' topology labels.

    Raises:
        ConfigInvalid: the configuration cannot be used.
        NegativeResult: there is a problem.
        OSError: a file cannot be read.
        UsageError: a file does not hold what its option needs.
    """
    files.check_stdin_once([*nodes, config])
    settings = files.configured(config).topology
    found = hygiene.check(read_nodes(nodes), settings)
    if output is CheckOutput.COMMANDS:
        for command in hygiene.commands(found.corrections):
            line(command)
    else:
        show(_result(found), output, lambda: _print(found))
    if not found.ok:
        raise NegativeResult


def _print(found: Hygiene) -> None:
    for finding in found.findings:
        line(f"{finding.severity.value}: {finding.reason}: {finding.message}")
        line(f"  nodes: {listed(finding.nodes, _MAX_LISTED)}")
        if finding.misread_by:
            line(f"  misread by: {', '.join(finding.misread_by)}")
    numbers = {severity: sum(one.severity is severity for one in found.findings) for severity in LabelSeverity}
    problems = count_of(numbers[LabelSeverity.PROBLEM], "problem")
    warnings = count_of(numbers[LabelSeverity.WARNING], "warning")
    line(f"{count_of(found.nodes, 'node')}: {problems}, {warnings}")
    if found.corrections:
        line("-o commands prints the commands that correct labels")


def _result(found: Hygiene) -> Json:
    return {
        "ok": found.ok,
        "nodeCount": found.nodes,
        "findings": to_builtins(found.findings),
        "quarantined": [
            {"node": entry.node, "reason": entry.why.value, "message": entry.message, "labels": labels}
            for entry, labels in found.quarantined
        ],
    }
