"""Names of files that no cache has, in any directory: leftovers of programs, secrets, weights of models. Pure.

Sources: triton/runtime/cache.py (`tmp.pid_…`); the NFS client of Linux (`.nfs…`, a deleted file that is still open);
the documentation of huggingface_hub (`token`, `stored_tokens`), OpenSSH, GnuPG, Docker, the clouds' command lines.
"""

import re
from typing import Final

from gkm.runtimes.layout import FileKind

_LEFTOVER: Final = re.compile(
    r"tmp\.pid_.*|\.nfs[0-9a-f]+|.*\.(?:tmp|swp|swo|part|partial|orig)|.*~", re.ASCII | re.DOTALL
)
_SECRET: Final = re.compile(
    r"token|stored_tokens|\.?netrc|\.env(?:\..*)?|\.git-credentials|\.pypirc|\.npmrc|\.pgpass|\.htpasswd"
    r"|credentials(?:\..*)?|application_default_credentials\.json|kubeconfig|.*\.kubeconfig"
    r"|id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?|.*\.(?:key|pem|p12|pfx|jks|keystore|kdbx|ppk|asc|gpg)",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)
_SECRET_DIRECTORY: Final = re.compile(r"\.(?:ssh|gnupg|aws|azure|kube|docker|password-store)|gcloud", re.ASCII)
_WEIGHTS: Final = re.compile(
    r".*\.(?:safetensors|gguf|ggml|pt|pth|ckpt|onnx|npz|bin\.index\.json)", re.ASCII | re.IGNORECASE | re.DOTALL
)
_SECRET_TEXT: Final = re.compile(
    rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY|\b(?:hf_|ghp_|github_pat_|glpat-|sk-|xox[abp]-)[A-Za-z0-9_-]{16,}"
    rb"|\bAKIA[0-9A-Z]{16}\b|^machine \S+ login ",
    re.MULTILINE,
)
SECRET_BYTES: Final = 64 << 10
"""How many bytes at the start of a file are searched for secrets."""


def holds_secret(head: bytes) -> bool:
    """Return whether the first bytes of a file hold a private key or a token of a known form."""
    return _SECRET_TEXT.search(head) is not None


def foreign_kind(path: str) -> FileKind | None:
    """Return the kind of a file that belongs to no cache, from its path; None if the path does not tell.

    A secret stays one wherever it stands: also as part of a path that a runtime writes.
    """
    *directories, name = path.split("/")
    if _SECRET.fullmatch(name) or any(_SECRET_DIRECTORY.fullmatch(each) for each in (*directories, name)):
        return FileKind.SECRET
    if any(_LEFTOVER.fullmatch(each) for each in (*directories, name)):
        return FileKind.LEFTOVER
    return FileKind.WEIGHTS if _WEIGHTS.fullmatch(name) else None
