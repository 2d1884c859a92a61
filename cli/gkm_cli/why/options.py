"""The options of `gkm why` that choose pods."""

from dataclasses import dataclass
from typing import Annotated

import typer

from gkm_cli.clusters.options import NamespaceOption


@dataclass(frozen=True, kw_only=True)
class PodChoice:
    """The options of `gkm why` that choose pods, if no target names them."""

    namespace: NamespaceOption = ""
    all_namespaces: Annotated[
        bool, typer.Option("-A", "--all-namespaces", help="Explain the pods of all namespaces that wait or fail.")
    ] = False
    labels: Annotated[
        str, typer.Option("-l", "--selector", metavar="LABELS", help="Explain the pods with these labels, as kubectl.")
    ] = ""
