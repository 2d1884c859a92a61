"""The server's certificate and key: reloads the files when they change, without a restart."""

import logging
import ssl
from pathlib import Path

from gkm_operator.admission.https.throttled_log import ThrottledLog

_LOG = logging.getLogger(__name__)


class ServerCertificate:
    """Certificate and key of a server, from two PEM files.

    Changed files are loaded with the next connection. While the two files do not match each other, the server keeps
    using the previous pair.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        """Load the files.

        Raises:
            OSError: a file cannot be read, or (ssl.SSLError) certificate and key do not match.
        """
        self._files = (certificate, key)
        self._throttled_log = ThrottledLog(_LOG)
        self._stamp = self._read_stamp()
        self._context = self._load()

    def context(self) -> ssl.SSLContext:
        """Return the TLS context for the next connection.

        A change makes a new context: loading a mismatched pair into the old one would leave half of the pair there.
        """
        stamp = self._read_stamp()
        if stamp != self._stamp:
            try:
                self._context, self._stamp = self._load(), stamp
            except OSError as error:
                # Either a rotation is in progress, or the files are wrong: then an administrator must see it before the
                # old pair expires.
                why = error.strerror or str(error)
                self._throttled_log.warning("certificate not loaded", file=str(self._files[0]), why=why)
        return self._context

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION  # handshakes cost most: one for each connection
        # An encrypted key must fail; without a password callback OpenSSL would prompt on a terminal.
        context.load_cert_chain(*self._files, password=str)
        return context

    def _read_stamp(self) -> tuple[int, ...]:
        try:
            return tuple(path.stat().st_mtime_ns for path in self._files)
        except OSError:
            return ()
