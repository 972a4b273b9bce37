"""The site of the documentation builds without a warning, has all generated parts, and asks other sites for nothing."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import click
import pytest

import falkirk as fk
from falkirk import cli
from falkirk.errors.conditions import catalogue
from tools.site_sources import DIGEST, SITE, digest

ROOT = Path(__file__).parents[3]
#: Attributes whose address a browser asks for by itself. Links to follow (`a href`) are not among them.
ASKED = {"src", "srcset", "poster", "data", "action", "background"}


class Requests(HTMLParser):
    """Collects the addresses on other sites that a browser asks for when it shows a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the addresses of one tag."""
        for name, value in attrs:
            is_asked = name in ASKED or (tag == "link" and name == "href")
            if value and ((is_asked and re.match(r"(https?:)?//", value)) or (name == "style" and "url(" in value)):
                self.found.append(value)
            if name == "class" and value and "mermaid" in value.split():
                self.found.append("the theme fetches mermaid to draw this")


def test_api_page_has_every_public_name() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    assert sorted(re.findall(r"^::: falkirk\.(\w+)$", page, re.MULTILINE)) == sorted(fk.__all__)


def test_pictures_have_the_same_colours() -> None:
    """Each drawn picture has all colours itself, so that it can be read without the site."""
    drawn = [path for path in (ROOT / "docs" / "pictures").glob("*.svg") if path.name != "icon.svg"]
    assert len(drawn) >= 6
    assert len({re.findall(r"<style>.*?</style>", path.read_text(), re.DOTALL)[0] for path in drawn}) == 1
    assert not [path.name for path in drawn if re.search(r"[\"' ]#[0-9a-f]{3,6}[\"']", path.read_text())]


@pytest.mark.parametrize("change", ["content", "name", "one more"])
def test_a_site_of_other_sources_is_not_taken_for_this_one(tmp_path: Path, change: str) -> None:
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "page.md"
    page.write_text("text")
    before = digest(tmp_path)
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "page.html").write_text("the site itself does not count")
    assert digest(tmp_path) == before
    if change == "content":
        page.write_text("next")
    elif change == "name":
        page.rename(page.with_name("other.md"))
    else:
        page.with_name("other.md").touch()
    assert digest(tmp_path) != before


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The site: the one that `make site` has built of the same sources, without a warning, or a fresh one."""
    if DIGEST.exists() and DIGEST.read_text() == digest():
        return SITE
    for module in ("mkdocs", "material", "mkdocstrings_handlers.python"):
        pytest.importorskip(module, reason="`make site` installs it")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return tmp_path


def test_the_site_builds_and_is_complete(site: Path) -> None:
    requests = {}
    for page in site.glob("**/*.html"):
        parser = Requests()
        parser.feed(page.read_text())
        requests[page.name] = parser.found
    assert len(requests) > 90
    assert not {page: found for page, found in requests.items() if found}
    styles = [path.read_text() for path in site.glob("**/*.css")]
    assert not [
        found for style in styles for found in re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//[^)]*", style)
    ]

    conditions = (site / "conditions.html").read_text()
    assert not [c.name for _, c in catalogue() if f'id="{c.name.lower()}"' not in conditions]
    commands, api = (site / "cli.html").read_text(), (site / "api.html").read_text()
    assert not [c for c in cli.main.list_commands(click.Context(cli.main)) if f'id="falkirk-{c}"' not in commands]
    assert not [name for name in fk.__all__ if f'id="falkirk.{name}"' not in api]
    assert (site / "concepts.html").read_text().count('class="fk"') >= 3

    import yaml  # mkdocs brings it

    for page in [ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")]:
        for block in re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE):
            assert yaml.safe_load(block)
