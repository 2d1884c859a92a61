"""The commands of `gkm cache`, in the order of a cache's life."""

import typer

from gkm_cli.cache.build import build
from gkm_cli.cache.check import check
from gkm_cli.cache.extract import extract
from gkm_cli.cache.inspect import inspect
from gkm_cli.cache.push import push
from gkm_cli.cache.sign import sign
from gkm_cli.cache.verify import verify
from gkm_cli.option_groups import with_groups
from gkm_cli.output import PROGRAM

app = typer.Typer(help="Cache images: build, push, sign, verify, inspect, check, extract.", no_args_is_help=True)
_IMAGE = "registry.example/team/llama:1"
app.command(epilog=f"Example: {PROGRAM} cache build ~/.triton/cache --image {_IMAGE} --push")(with_groups(build))
app.command(epilog=f"Example: {PROGRAM} cache push ./llama.oci {_IMAGE}")(with_groups(push))
app.command(epilog=f"Example: {PROGRAM} cache sign {_IMAGE} --key cosign.key")(with_groups(sign))
app.command(epilog=f"Example: {PROGRAM} cache verify {_IMAGE} --key cosign.pub")(with_groups(verify))
app.command(epilog=f"Example: {PROGRAM} cache inspect {_IMAGE} -o json")(with_groups(inspect))
app.command(epilog=f"Example: {PROGRAM} cache check {_IMAGE}")(with_groups(check))
app.command(epilog=f"Example: {PROGRAM} cache extract {_IMAGE} --to ./cache --key cosign.pub")(with_groups(extract))
