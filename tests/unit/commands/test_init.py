"""`falkirk init` makes a project, and overwrites nothing."""

import ast
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner

from falkirk import cli
from falkirk.declare.load import load_application


def init(name: str) -> tuple[int, str]:
    """Run the command; return its exit code and its output."""
    done = CliRunner().invoke(cli.main, ["init", name])
    return done.exit_code, done.output


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("name", "module"), [("shop", "shop"), ("my-shop2", "my_shop2")])
def test_a_project_is_complete(name: str, module: str) -> None:
    code, output = init(name)
    assert code == 0, output
    folder = Path(name)
    files = {path.name: path.read_text() for path in folder.iterdir()}
    assert set(files) == {f"{module}.py", f"test_{module}.py", "send.py", "README.md", "requirements.txt", ".gitignore"}
    assert "$" not in "".join(files.values())
    assert f"falkirk=={version('falkirk')}" in files["requirements.txt"].split()
    for file, text in files.items():
        if file.endswith(".py"):
            ast.parse(text)
    assert len(files["README.md"].splitlines()) <= 20
    app = load_application(folder / f"{module}.py")
    assert app.name == name
    assert set(app.sinks) == {"sales"}
    assert f"falkirk run {module}.py --local" in output


def test_nothing_is_overwritten() -> None:
    Path("shop").mkdir()
    Path("shop", "shop.py").write_text("mine")
    code, output = init("shop")
    assert code == 1
    assert "PROJECT_EXISTS" in output
    assert [path.name for path in Path("shop").iterdir()] == ["shop.py"]


@pytest.mark.parametrize("name", ["Shop", "1shop", "import", "json", "pyspark", "send", "sh op", "", "é"])
def test_a_name_that_can_be_no_module_is_refused(name: str) -> None:
    code, output = init(name)
    assert code == 1
    assert "PROJECT_NAME_INVALID" in output
    assert not [*Path().iterdir()]
