"""Threads that read one msgspec type for the first time at the same moment: each thread finishes and succeeds."""

import subprocess
import sys

READING = """
import sys, threading
import msgspec
from gkm.images.signatures.signature_formats import Bundle
from gkm.api import msgspec_warmup

sys.setswitchinterval(1e-6)
msgspec_warmup.warm_up()
raw = msgspec.json.encode({
    "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
    "verificationMaterial": {"publicKey": {"hint": "x"}, "tlogEntries": []},
    "messageSignature": {"messageDigest": {"algorithm": "SHA2_256", "digest": "AA=="}, "signature": "AA=="},
})
together, done = threading.Barrier(4), []

def read():
    together.wait()
    msgspec.json.decode(raw, type=Bundle)
    done.append("read")

threads = [threading.Thread(target=read) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(*done)
"""


def test_threads_that_read_a_type_at_once_all_read_it() -> None:
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", READING], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (0, "read read read read\n"), done.stderr
