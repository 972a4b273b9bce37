"""Module: the jar of Falkirk's own Java classes, compiled once per machine from `java/src`."""

import hashlib
import shutil
import subprocess
import zipfile
from pathlib import Path

import pyspark

from falkirk.errors import MachineError
from falkirk.local.cache import cache_home, filled
from falkirk.local.jars import spark_jars
from falkirk.local.java import find_java

_SOURCES = Path(__file__).parents[2] / "java" / "src"
_JAR = "falkirk-module.jar"
_ECJ = """<ivy-module version="2.0"><info organisation="falkirk" module="ecj"/><configurations><conf name="ecj"/>
</configurations><dependencies><dependency org="org.eclipse.jdt" name="ecj" rev="3.37.0" conf="ecj->default"
transitive="false"/></dependencies></ivy-module>"""


def module_jar() -> Path:
    """Return the jar of Falkirk's Java classes; compile it first if it is missing. Raises: MachineError."""
    sources = sorted(_SOURCES.rglob("*.java"))
    text = "".join(f"{source.relative_to(_SOURCES)}\n{source.read_text()}" for source in sources)
    key = hashlib.sha256((text + pyspark.__version__).encode()).hexdigest()[:16]
    waiting = "Another process is compiling Falkirk's Java classes; waiting for it."
    return filled(cache_home() / "module" / key, lambda folder: _compile(folder, sources), waiting=waiting) / _JAR


def _compile(folder: Path, sources: list[Path]) -> None:
    jars, java = Path(pyspark.__file__).parent / "jars", find_java().command
    (folder / "ivy.xml").write_text(_ECJ)
    _run([java, "-cp", str(jars / "*"), "org.apache.ivy.Main", "-cache", str(folder / "ivy"), "-settings",
          str(Path(__file__).parent / "ivysettings.xml"), "-ivy", str(folder / "ivy.xml"), "-confs", "ecj", "-retrieve",
          str(folder / "[artifact].[ext]")])  # fmt: skip
    path = ":".join(map(str, [*sorted(jars.glob("*.jar")), *spark_jars()]))
    _run([java, "-jar", str(folder / "ecj.jar"), "--release", "17", "-nowarn", "-cp", path, "-d",
          str(folder / "classes"), *map(str, sources)])  # fmt: skip
    with zipfile.ZipFile(folder / _JAR, "w", zipfile.ZIP_DEFLATED) as jar:
        for file in sorted((folder / "classes").rglob("*.class")):
            jar.write(file, file.relative_to(folder / "classes"))
    shutil.rmtree(folder / "ivy", ignore_errors=True)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MachineError(
            "MODULE_NOT_COMPILED", f"Java classes: {(done.stdout + done.stderr)[-3000:]}", where=command[0]
        )
