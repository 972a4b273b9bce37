"""PEM files of a private key and its certificate, as all machines of a cluster have them for TLS."""

import subprocess
from pathlib import Path


def pem_file(file: Path, *names: str) -> Path:
    """Write a private key and its certificate. Args: names: further options of the certificate."""
    made = file.with_suffix(".certificate")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=cluster", *names, "-keyout", file, "-out", made],
        check=True, capture_output=True,
    )  # fmt: skip
    file.chmod(0o600)
    with file.open("a") as both:
        both.write(made.read_text())
    return file
