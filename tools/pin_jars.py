"""Pin: fetch the jars that ivy.xml names and write their SHA-256 to falkirk/local/jars.sha256, for a person to review.

Their coordinates go to tools/jvm_packages.txt, as package URLs, which `tools/audit.py` and other scanners read.

Run it after each change of ivy.xml, from the root of the repository: `.venv/bin/python tools/pin_jars.py`. What it
writes is what the registry serves now. So compare it: a sum that changes while its version does not is an attack or a
republished file, and must not be committed.
"""

import hashlib
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from falkirk.local import jars

PACKAGES = Path(__file__).with_name("jvm_packages.txt")


def main() -> None:
    """Write the manifest, and say which sums of known files have changed. Exit code 1 then."""
    known = jars.manifest() if jars.MANIFEST.exists() else {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        jars.resolve_with_ivy(folder)
        files = sorted(path for kind in jars.KINDS for path in (folder / kind).glob("*.jar"))
        packages = {package for kind in jars.KINDS for package in resolved(folder / "ivy" / f"falkirk-jars-{kind}.xml")}
        sums = {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    changed = sorted(name for name in sums.keys() & known.keys() if sums[name] != known[name])
    for name in changed:
        print(f"{name}: was {known[name]}, is {sums[name]}: the manifest is left as it was", file=sys.stderr)
    if changed:
        raise SystemExit(1)
    jars.MANIFEST.write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()))
    PACKAGES.write_text("".join(f"{package}\n" for package in sorted(packages)))
    print(f"{jars.MANIFEST}: {len(sums)} jars, {len(sums.keys() - known.keys())} of them new")


def resolved(report: Path) -> set[str]:
    """Return the package URLs of what Ivy resolved, as its report says."""
    return {
        f"pkg:maven/{module.attrib['organisation']}/{module.attrib['name']}@{revision.attrib['name']}"
        for module in ElementTree.parse(report).iter("module")
        for revision in module.iter("revision")
        if "evicted" not in revision.attrib
    }


if __name__ == "__main__":
    main()
