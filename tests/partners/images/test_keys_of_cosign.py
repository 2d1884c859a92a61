"""Private keys that the real cosign writes."""

from pathlib import Path

import pytest
from gkm.api.errors import GKMError
from gkm.images.signatures import keys
from gkm.images.signing import keys as signing_keys
from support.images.signers import KINDS, pem
from support.peers import require
from support.sigstore.cosign import Cosign


@pytest.mark.parametrize("command", ["cosign", "cosign2"])
@pytest.mark.parametrize("password", ["", "correct horse"])
def test_the_key_that_cosign_writes_is_read(command: str, password: str, tmp_path: Path) -> None:
    require.peer(command)
    cosign = Cosign(tmp_path, command)
    cosign.run("generate-key-pair", environment={"COSIGN_PASSWORD": password})
    key = signing_keys.read(str(cosign.private_key), password.encode())
    assert key.public.key_id == keys.load(str(cosign.public_key)).key_id
    with pytest.raises(GKMError, match="does not open"):
        signing_keys.read(str(cosign.private_key), b"another")


@pytest.mark.parametrize("kind", ["p256", "rsa4096"])
def test_a_key_that_cosign_has_imported_is_read(kind: str, tmp_path: Path) -> None:
    require.peer("cosign")
    made = KINDS[kind]()
    (tmp_path / "own.pem").write_bytes(pem(made))
    cosign = Cosign(tmp_path)
    cosign.run("import-key-pair", "--key", "own.pem", environment={"COSIGN_PASSWORD": "p"})
    key = signing_keys.read(str(tmp_path / "import-cosign.key"), b"p")
    assert key.public.pem == signing_keys.load(pem(made), b"", "own").public.pem
