"""The commands of `gkm template`; each imports its modules only when it runs."""

import typer

from gkm_cli.lazy_commands import CommandGroup, PlainCommand, with_groups
from gkm_cli.output import PROGRAM
from gkm_cli.template.options import ConfigOption, ImportOptions, RenderOptions

app = typer.Typer(
    cls=CommandGroup,
    rich_markup_mode=None,
    help="Group templates: render offline, import from OSMO, print rights.",
    no_args_is_help=True,
)
_FILES = "--templates templates.yaml --pool pool.yaml --group group.yaml"


def render(options: RenderOptions) -> None:
    """Print the objects that a TaskGroup would get, or why it would be refused; exit 3 then."""
    from gkm_cli.template.render import print_objects  # noqa: PLC0415 -- imports that other commands do not need

    print_objects(options)


def import_(options: ImportOptions) -> None:
    """Convert OSMO's group templates and pools; exit 3 if GKM would refuse one of them."""
    from gkm_cli.template.importing import print_imported  # noqa: PLC0415 -- as above

    print_imported(options)


@app.command(cls=PlainCommand, epilog=f"Example: {PROGRAM} template rights --config config.yaml > rights.yaml")
def rights(config: ConfigOption = None) -> None:
    """Print the roles of GKM for the kinds in taskGroups.allowedKinds."""
    from gkm.api.task_group_rights import manifests  # noqa: PLC0415 -- as above

    from gkm_cli.inputs import files  # noqa: PLC0415 -- as above
    from gkm_cli.output import print_manifests  # noqa: PLC0415 -- as above

    print_manifests(manifests(files.configured(config).task_groups))


app.command(cls=PlainCommand, epilog=f"Example: {PROGRAM} template render {_FILES}")(with_groups(render))
app.command("import", cls=PlainCommand, epilog=f"Example: {PROGRAM} template import osmo.json | kubectl apply -f -")(
    with_groups(import_)
)
