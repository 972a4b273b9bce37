"""The Java compiler: ECJ, a jar that needs no JDK, run as a separate process on the Java that Spark uses.

ECJ is a tool. It is on no class path of an application.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from falkirk.errors import MachineError
from falkirk.spark_setup.jars import compiler_jars
from falkirk.spark_setup.java import VERSION_MIN, Java, find_java

_LINES_MAX = 30
#: A short run: the second compiler and a parallel collector cost more than they save. Messages are in English.
_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Duser.language=en", "-Dfile.encoding=UTF-8")
#: No annotation processor of a jar on the class path runs inside the compiler.
_OPTIONS = ("-proc:none", "-g", "-encoding", "UTF-8")


def compile_java(
    sources: Path, classes: Path, *, class_path: Sequence[Path], warnings_are_errors: bool = False
) -> None:
    """Compile all Java files below `sources` into the folder `classes`.

    Raises: MachineError: `MODULE_NOT_COMPILED`, with the compiler's words; or the errors of missing Java or jars.
    """
    files = [str(file.relative_to(sources)) for file in java_files(sources)]
    java = find_java()
    command = [
        java.command, *_JVM, "-cp", os.pathsep.join(map(str, compiler_jars())),
        "org.eclipse.jdt.internal.compiler.batch.Main", *_release(java), *_OPTIONS,
        *(("-failOnWarning",) if warnings_are_errors else ("-nowarn",)),
        "-cp", os.pathsep.join(map(str, class_path)), "-d", str(classes), *files,
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=sources, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode != 0:
        output = (done.stdout + done.stderr).replace(f"{sources.resolve()}{os.sep}", "")
        lines = [line.rstrip() for line in output.splitlines() if set(line.strip()) - {"-"}]
        telling = lines[:_LINES_MAX] or [f"the compiler ended with code {done.returncode} and said nothing"]
        raise MachineError(
            "MODULE_NOT_COMPILED",
            "the Java module could not be compiled:\n" + "\n".join(telling),
            where=sources,
            hint="Correct the Java files if you changed them. Otherwise install Falkirk again, or report this error.",
            lines=telling,
        )


def java_files(folder: Path) -> tuple[Path, ...]:
    """Return the Java files below a folder, sorted."""
    return tuple(sorted(folder.rglob("*.java")))


def _release(java: Java) -> tuple[str, ...]:
    """Return the options for the oldest Java on which Spark runs.

    With `--release`, a newer Java needs a list of the older one's classes, which only a JDK has. Then the compiler
    takes the classes of this Java. ECJ needs no list for the Java that runs it.
    """
    listed = Path(java.command).resolve().parents[1] / "lib" / "ct.sym"
    if java.version == VERSION_MIN or listed.is_file():
        return "--release", str(VERSION_MIN)
    return "-source", str(VERSION_MIN), "-target", str(VERSION_MIN)
