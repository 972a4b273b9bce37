"""Stand-ins for programs that unit tests must not start."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def fake_java(folder: Path, output: str) -> Path:
    """Make a JAVA_HOME in `folder` whose `java` prints `output` on stderr, as the real one does for its version."""
    (folder / "bin").mkdir()
    (folder / "version.txt").write_text(output)
    command = folder / "bin" / "java"
    command.write_text(f"#!/bin/sh\ncat '{folder / 'version.txt'}' >&2\n")
    command.chmod(0o755)
    return folder
