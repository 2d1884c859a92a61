"""`gkm cache tags`: list the tags of a repository or a layout."""

from typing import Annotated

import typer
from gkm.images import local_reference

from gkm_cli.output import Output, OutputOption, line, show
from gkm_cli.registries import RegistryAccess

RepositoryArgument = Annotated[str, typer.Argument(metavar="REPO", help="registry/repository, or oci:PATH.")]
MOST = 100_000
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=MOST, help="List at most so many tags.")]


def tags(
    repository: RepositoryArgument,
    *,
    limit: LimitOption = 10_000,
    access: RegistryAccess,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the tags of REPO, the tags of signatures among them."""
    ref = local_reference.parse(repository)
    found = access.store(ref).tags(ref, limit + 1)
    more = len(found) > limit
    result = {"repository": ref.name, "tags": found[:limit], "more": more}

    def print_tags() -> None:
        for tag in found[:limit]:
            line(tag)
        if more:
            line("… and more" + (f": list them with --limit {min(limit * 10, MOST)}" if limit < MOST else ""))

    show(result, output, print_tags)
