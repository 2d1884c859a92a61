"""Threads that decode one msgspec type for the first time at the same moment: each thread finishes and succeeds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.host import prepared_types
from support.host.waiting import scaled
from support.kube import kubeconfigs

READING = """
import os, signal, sys, threading
import msgspec
from gkm.images.signatures.signature_formats import Bundle
from gkm.api import msgspec_warmup

raw = msgspec.json.encode({
    "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
    "verificationMaterial": {"publicKey": {"hint": "x"}, "tlogEntries": []},
    "messageSignature": {"messageDigest": {"algorithm": "SHA2_256", "digest": "AA=="}, "signature": "AA=="},
})

def read():
    together.wait()
    msgspec.json.decode(raw, type=Bundle)
    done.append("read")

for _ in range(3):  # in processes of their own, which have prepared nothing
    if os.fork():
        assert os.wait()[1] == 0
        continue
    signal.alarm(int(sys.argv[1]))  # threads that hang do not end
    sys.setswitchinterval(1e-6)
    msgspec_warmup.warm_up()
    together, done = threading.Barrier(4), []
    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(*done)
    break
"""


def test_threads_that_read_a_type_at_once_all_read_it() -> None:
    command = [sys.executable, "-c", READING, str(round(scaled(60)))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=scaled(240), check=False)
    assert (done.returncode, done.stdout) == (0, 3 * "read read read read\n"), done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "gkm_operator.main controllers --health=127.0.0.1:0",
        (
            "gkm_operator.main admission --listen=127.0.0.1:0 --health=127.0.0.1:0 --self-signed={0}/tls"
            " --webhook-configuration=mutating/x --domains=on --task-groups=on --pod-caches=on"
        ),
        "gkm_agent.main --state={0}/state --run={0}/run --node=n",
    ],
    ids=["controllers", "admission", "agent"],
)
def test_every_type_of_a_process_is_prepared_before_its_threads_start(words: str, tmp_path: Path) -> None:
    kubeconfig = kubeconfigs.write(tmp_path / "kubeconfig", "http://127.0.0.1:1", {"token": "t"})
    command = [sys.executable, prepared_types.__file__, *words.format(tmp_path).split(), f"--kubeconfig={kubeconfig}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=scaled(60), check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"at the first thread": [], "later": []}
