"""Init: `falkirk init NAME` makes a project that runs: a pipeline, a test with the test kit, and a README."""

import keyword
import re
import sys
from importlib.metadata import version
from pathlib import Path
from string import Template

import click

from falkirk.errors.conditions.commands import PROJECT_EXISTS, PROJECT_NAME_INVALID
from falkirk.platform.terminal import Terminal
from falkirk.user_tools.commands.group import Command

_TEMPLATES = Path(__file__).with_name("project")
#: For each file of a project, its template.
FILES = {
    "$module.py": "pipeline.py.txt",
    "test_$module.py": "test.py.txt",
    "send.py": "send.py.txt",
    "README.md": "README.md.txt",
    "requirements.txt": "requirements.txt.txt",
    ".gitignore": "gitignore.txt",
}
#: Modules that the project imports. A file of that name would hide them.
_IMPORTED = {"falkirk", "pyspark", "pytest", "confluent_kafka", "send"}


@click.command(cls=Command)
@click.argument("name")
def init(name: str) -> None:
    """Make the project NAME: a pipeline, its test, and a README.

    The project is in a new folder with that name.
    """
    folder = make_project(Path(name))
    out, module = Terminal(), module_of(folder.name)
    out.print(f"{folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}", soft_wrap=True)
    out.print(f"Next: cd {folder}; pytest; falkirk run {module}.py --local", soft_wrap=True)


def module_of(name: str) -> str:
    """Return the name of a project's module. Raises: DefinitionError: `PROJECT_NAME_INVALID`."""
    module = name.replace("-", "_")
    hidden = keyword.iskeyword(module) or module in sys.stdlib_module_names or module in _IMPORTED
    if not re.fullmatch("[a-z][a-z0-9_-]{0,63}", name) or hidden:
        reason = "a module of this name exists" if hidden else "a name has small letters, digits, - and _"
        raise PROJECT_NAME_INVALID.error(name=name, reason=reason)
    return module


def make_project(folder: Path) -> Path:
    """Make a project in a folder that does not exist yet, and return the folder.

    Raises: DefinitionError: `PROJECT_EXISTS`, `PROJECT_NAME_INVALID`.
    """
    values = {"name": folder.name, "module": module_of(folder.name), "version": version("falkirk")}
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise PROJECT_EXISTS.error(where=folder, folder=str(folder)) from error
    for name, template in FILES.items():
        text = Template((_TEMPLATES / template).read_text(encoding="utf-8")).substitute(values)
        (folder / Template(name).substitute(values)).write_text(text, encoding="utf-8")
    return folder
