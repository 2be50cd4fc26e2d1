"""Certificates for tests, made with the `openssl` command as the guide says."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no `openssl` command")
EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*arguments: object) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def make_authority(folder: Path) -> Path:
    """A folder with `ca.pem` and `ca.key`."""
    folder.mkdir(parents=True)
    subject = ("-subj", f"/CN={folder.name}", "-days", 3650)
    _openssl("req", "-x509", *EC, *subject, "-keyout", folder / "ca.key", "-out", folder / "ca.pem")
    return folder


def make_identity(folder: Path, authority: Path, days: int = 3650) -> Path:
    """A folder for `--tls`, with a certificate of the authority."""
    folder.mkdir(parents=True)
    _openssl("req", *EC, "-subj", f"/CN={folder.name}", "-keyout", folder / "key.pem", "-out", folder / "csr.pem")
    signing = ("-CA", authority / "ca.pem", "-CAkey", authority / "ca.key", "-CAcreateserial", "-days", days)
    _openssl("x509", "-req", "-in", folder / "csr.pem", *signing, "-out", folder / "cert.pem")
    (folder / "key.pem").chmod(0o600)
    shutil.copy(authority / "ca.pem", folder / "ca.pem")
    return folder
