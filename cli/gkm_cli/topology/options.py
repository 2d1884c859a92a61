"""The options of `gkm topology`."""

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

_file = partial(typer.Option, metavar="FILE")
NodesOption = Annotated[
    list[Path], _file("--nodes", help="The output of `kubectl get nodes -o json`; - is standard input.")
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="A GKM configuration file; GKM uses its section topology.")
]


class BuildOutput(StrEnum):
    """The output formats of `gkm topology build`."""

    TREE = "tree"
    JSON = "json"
    HYPERNODES = "hypernodes"
    KUEUE = "kueue"
    KAI = "kai"
    GROVE = "grove"
    NFD = "nfd"
    SLURM_TREE = "slurm-tree"
    SLURM_BLOCK = "slurm-block"
    LABELS = "labels"


CheckOutput = StrEnum("CheckOutput", "TABLE JSON YAML COMMANDS")
"""The output formats of `gkm topology check`."""
ShowOutput = StrEnum("ShowOutput", "TABLE JSON YAML SVG HTML")
"""The output formats of `gkm topology show`."""


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The options of `gkm topology` that name the sources of the tree."""

    nodes: Annotated[
        list[Path] | None,
        _file(
            "--nodes",
            help="The output of `kubectl get nodes -o json`; - is standard input. Without it, the cluster is read.",
        ),
    ] = None
    fabrics: Annotated[
        list[Path] | None, _file("--fabrics", help="The output of `kubectl get nodefabrics -o json`.")
    ] = None
    ibnetdiscover: Annotated[
        list[Path] | None, _file("--ibnetdiscover", help="The output of ibnetdiscover, as it is or by gzip.")
    ] = None
    ufm: Annotated[
        list[Path] | None, _file("--ufm", help="The answer of UFM to GET /ufmRest/resources/ports, page by page.")
    ] = None
    lldp: Annotated[
        list[Path] | None,
        _file("--lldp", help="A JSON object with the output of `lldpcli -f json show neighbors` by node."),
    ] = None
    tree_file: Annotated[Path | None, _file("--tree-file", help="A tree of domains, or a model of topograph.")] = None
    config: ConfigOption = None

    @property
    def files(self) -> list[Path | None]:
        """Return the paths of the files that all options name; None for an option that is not given."""
        several = (self.nodes, self.fabrics, self.ibnetdiscover, self.ufm, self.lldp)
        return [*(path for paths in several for path in paths or ()), self.tree_file, self.config]
