"""The picture of a plan in the documents. `PYTHONPATH=tests python scripts/plan_picture.py` writes it again."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from support.cli.plan_files import Json, PlanWorkspace, listed, node, pod, run_plan

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "plan.svg"
COMMAND = ("--total-gpus", 256, "--group", 16, "--pod", 4, "--spares", 1, "--name", "llama", "-o", "svg")
_DOMAINS, _NODES, _GPUS = 16, 18, 4


def nodes() -> Iterator[Json]:
    """Yield 16 racks of 72 GPUs, four in a block, in two regions; two nodes are cordoned."""
    for domain in range(_DOMAINS):
        for number in range(_NODES):
            cordoned = {"unschedulable": True} if (domain, number) in ((2, 5), (9, 0)) else {}
            found = node(f"gpu-{domain:02}-{number:02}", f"rack-{domain:02}", f"row-{domain // 4}", _GPUS, **cordoned)
            found["metadata"]["labels"]["region"] = "eu" if domain < _DOMAINS // 2 else "us"
            yield found


def pods() -> Iterator[Json]:
    """Yield pods of others: a third of the racks is nearly full, a third is in part, a third is free."""
    for domain in range(_DOMAINS):
        for number in range((15, 6, 0)[domain % 3]):
            yield pod(f"other-{domain}-{number}", f"gpu-{domain:02}-{number:02}", 2 if number % 5 == 1 else _GPUS)


def drawn(directory: Path) -> str:
    """Return the picture.

    Raises:
        RuntimeError: `gkm plan` failed.
    """
    workspace = PlanWorkspace(directory)
    files = workspace.write("nodes.json", listed(*nodes())), workspace.write("pods.json", listed(*pods()))
    done = run_plan("--nodes", files[0], "--pods", files[1], *COMMAND)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        PICTURE.write_text(drawn(Path(made)), encoding="utf-8")
