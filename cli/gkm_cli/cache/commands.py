"""The commands of `gkm cache`, in the order of a cache's life."""

import typer

from gkm_cli.lazy_commands import LazyCommand, lazy_group

_IMAGE = "registry.example/team/caches/llama:1"


def _command(name: str, text: str, arguments: str) -> LazyCommand:
    return LazyCommand(f"gkm_cli.cache.{name}", name, text, f"{{program}} cache {name} {arguments}")


def _generation(name: str, text: str) -> LazyCommand:
    example = f"{{program}} cache {name} captured-triton-sm90-91ecb9aa01c7 -n ml-apps"
    return LazyCommand("gkm_cli.cache.generations", name, text, example)


COMMANDS = {
    "build": _command(
        "build",
        "Make one image of the kernel caches in each DIR, for Triton and vLLM in MCV's format.",
        f"~/.triton/cache --image {_IMAGE} --push",
    ),
    "push": _command(
        "push",
        "Push the image in PATH, an OCI layout or a docker-archive, as REF, with the signatures in the layout.",
        f"./llama.oci {_IMAGE}",
    ),
    "sign": _command(
        "sign",
        "Sign the digest that REF resolves to now, by a key or as an identity; with --all-tags, all images of REF.",
        f"{_IMAGE} --key cosign.key",
    ),
    "attest": _command(
        "attest",
        "Sign the statement or predicate in FILE about the digest that REF resolves to now, and attach it.",
        f"{_IMAGE} provenance.json --key cosign.key",
    ),
    "verify": _command(
        "verify",
        "Resolve REF and show for every signature whether it is valid, and why; exit 3 if the image is not verified.",
        f"{_IMAGE} --key cosign.pub",
    ),
    "inspect": _command(
        "inspect",
        "Show format, targets and labels of an image; --entries also fetches the content and lists its entries.",
        f"{_IMAGE} -o json",
    ),
    "check": _command(
        "check", "Show which GPUs can use an image, and why others cannot; exit 3 if no GPU can.", _IMAGE
    ),
    "explain": _command(
        "explain",
        "Compare the key of a pod with an image's, factor by factor; exit 3 if one differs, 1 if it is not known.",
        f"{_IMAGE} --pod server.yaml",
    ),
    "extract": _command(
        "extract",
        "Write the verified content of an image into DIR: all files, or no file.",
        f"{_IMAGE} --to ./cache --key cosign.pub",
    ),
    "copy": _command(
        "copy",
        "Copy the image SRC to DST with its signatures, attestations and referrers; what DST has is not sent again.",
        f"{_IMAGE} oci:./llama:1",
    ),
    "diff": _command(
        "diff",
        "Compare two images: labels, targets, sizes and files; exit 0 for one digest, 1 for two, 2 without an answer.",
        f"{_IMAGE} registry.example/team/caches/llama:2",
    ),
    "tags": _command("tags", "List the tags of REPO, the tags of signatures among them.", _IMAGE.rpartition(":")[0]),
    "delete": _command(
        "delete",
        "Delete the tag or the digest REF from its registry; the bytes go when the registry collects its garbage.",
        _IMAGE,
    ),
    "list": LazyCommand(
        "gkm_cli.cache.list_caches",
        "list_caches",
        "List the caches of a namespace, or of the cluster: image, nodes that have it, signature, pods that use it.",
        "{program} cache list -A",
    ),
    "pin": _generation(
        "pin", "Let nodes take this member of its family, even if there are newer ones; --unpin takes it back."
    ),
    "promote": _generation(
        "promote", "Take a captured cache over from the controllers: it is yours then, and retention leaves it alone."
    ),
    "drop": _generation(
        "drop",
        "Delete a generation of a family; refused while pods use it, or it is pinned or held back. Its image stays.",
    ),
}

app = typer.Typer(
    rich_markup_mode=None,
    cls=lazy_group(COMMANDS),
    help="Cache images: build, push, sign, attest, verify, inspect, check, explain, extract, copy, diff, tags, delete; "
    "list a cluster's caches; "
    "pin, promote and drop generations.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def cache() -> None:
    """Cache images."""
