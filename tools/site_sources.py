"""A digest of all files from which the site is made. `make site` writes it beside the site that it has built.

While the digest is the same, `tests/unit/house/test_site.py` examines that site, and does not build another one.
"""

import hashlib
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: The site that `make site` builds, and the digest of its sources.
SITE, DIGEST = ROOT / "build" / "site", ROOT / "build" / "site.sha256"
#: Generated folders. Folders with a name that begins with a dot are generated, too.
GENERATED = {"__pycache__", "build", "checkpoints", "dist", "metastore_db", "spark-warehouse"}


def digest(root: Path = ROOT) -> str:
    """Return a digest of the paths and contents of all files in a folder that are not generated."""
    found = hashlib.sha256()
    for folder, below, files in os.walk(root):
        below[:] = sorted(name for name in below if name not in GENERATED and not name.startswith("."))
        for path in (Path(folder, name) for name in sorted(files) if name != "derby.log"):
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            found.update(f"{path.relative_to(root)} {content}\n".encode())
    return found.hexdigest()


if __name__ == "__main__":
    sys.stdout.write(digest())
