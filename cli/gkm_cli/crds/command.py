"""The command `gkm crds`, which imports the Kubernetes client only when it applies."""

from typing import Annotated

import typer

from gkm_cli.clusters.options import ClusterOptions
from gkm_cli.output import Output, OutputOption, print_manifests, show

ApplyOption = Annotated[
    bool, typer.Option("--apply", help="Apply them, unless the cluster has kinds of another product with these names.")
]


def crds(cluster: ClusterOptions, *, apply: ApplyOption = False, output: OutputOption = Output.TABLE) -> None:
    """Print the CustomResourceDefinitions of this version, or apply them: before an upgrade, which Helm does not."""
    from gkm.api import crds as kinds  # noqa: PLC0415 -- its imports would slow down every other command

    definitions = kinds.definitions()
    if not apply:
        items = list(definitions.values())
        show({"apiVersion": "v1", "kind": "List", "items": items}, output, lambda: print_manifests(items))
        return
    from gkm_cli.crds.applying import apply_all  # noqa: PLC0415 -- as above

    apply_all(cluster, definitions, output)
