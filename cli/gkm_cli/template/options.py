"""The options of `gkm template`."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from gkm_cli.output import ManifestOutput

_file = partial(typer.Option, metavar="FILE")
ConfigOption = Annotated[
    Path | None, _file("--config", help="A GKM configuration file; GKM uses its section taskGroups.")
]


@dataclass(frozen=True, kw_only=True)
class RenderOptions:
    """The files to render. A file may hold manifests of several kinds; each option uses its own kinds."""

    templates: Annotated[list[Path], _file("--templates", help="Manifests of GroupTemplates; - is standard input.")]
    pool: Annotated[Path, _file("--pool", help="Manifests of Pools, with the group's Pool.")]
    group: Annotated[
        Path | None, _file("--group", help="The manifest of a TaskGroup; without it, a sample group of the one pool.")
    ] = None
    config: ConfigOption = None
    output: Annotated[ManifestOutput, typer.Option("-o", "--output", help="The output format.")] = ManifestOutput.TABLE


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """The options of `gkm template import`: the files to convert."""

    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="OSMO's configuration as JSON or YAML: `group_templates` and `pools`, Helm values, or the "
            "output of `osmo config show GROUP_TEMPLATE` and `osmo config show POOL`.",
        ),
    ]
    config: ConfigOption = None
