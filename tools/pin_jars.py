"""Pin: downloads the jars in ivy.xml and writes their SHA-256 to `jars.sha256` beside it, for a person to review.

The jars' coordinates go to tools/jvm_packages.txt as package URLs, which `tools/audit.py` and other scanners read.

Run this program after each change of ivy.xml, from the root of the repository: `.venv/bin/python tools/pin_jars.py`. It
writes the checksums of the files that the registry serves now, so compare them with the former ones. If a checksum
changes but the version does not, the file was attacked or republished. Do not commit such a change.
"""

import hashlib
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from falkirk.spark_setup import jars

PACKAGES = Path(__file__).with_name("jvm_packages.txt")


def main() -> None:
    """Write the manifest. If checksums of known files have changed, print them instead and end with exit code 1."""
    known = jars.manifest() if jars.MANIFEST.exists() else {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        packages: set[str] = set()
        for kind in jars.JAR_KINDS:
            (folder / kind).mkdir()
            jars.resolve_with_ivy(kind, folder / kind)
            packages |= resolved(folder / kind / "ivy" / f"falkirk-jars-{kind}.xml")
        files = sorted(path for kind in jars.JAR_KINDS for path in (folder / kind).glob("*.jar"))
        sums = {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    changed = sorted(name for name in sums.keys() & known.keys() if sums[name] != known[name])
    for name in changed:
        print(f"{name}: was {known[name]}, is {sums[name]}: the manifest is unchanged", file=sys.stderr)
    if changed:
        raise SystemExit(1)
    jars.MANIFEST.write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()))
    PACKAGES.write_text("".join(f"{package}\n" for package in sorted(packages)))
    print(f"{jars.MANIFEST}: {len(sums)} jars, {len(sums.keys() - known.keys())} of them new")


def resolved(report: Path) -> set[str]:
    """Return the package URLs that Ivy resolved, according to its report."""
    return {
        f"pkg:maven/{module.attrib['organisation']}/{module.attrib['name']}@{revision.attrib['name']}"
        for module in ElementTree.parse(report).iter("module")
        for revision in module.iter("revision")
        if "evicted" not in revision.attrib
    }


if __name__ == "__main__":
    main()
