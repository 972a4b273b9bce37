"""Hooks of mkdocs for the site of the documentation: pages and links that Markdown files alone can't have.

The Markdown files stay readable without the site. Their links lead to files of the repository. The site has only what
is under docs/, so this module adds the other linked files as pages, and rewrites links to them. It also makes the parts
that come from code: the conditions, the command line, and the list of decisions.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools import site_parts

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]+)\)")
CODE = re.compile(r"^(```.*?^```|(?: {4}[^\n]*\n)+)", re.DOTALL | re.MULTILINE)
LANGUAGES = {".py": "python", ".yml": "yaml", ".json": "json", ".md": "markdown"}
#: Pages of the site that are files outside of docs/, by their path in the repository.
PAGES = {"README.md": "overview.md", "SECURITY.md": "project/SECURITY.md"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the navigation: pages of a folder for `*`, without pages that don't exist."""
    config.nav = _navigation(config.nav)
    return config


def _navigation(entries: list[Any]) -> list[Any]:
    found: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict):
            ((title, below),) = entry.items()
            found.append({title: _navigation(below) if isinstance(below, list) else below})
        elif entry.endswith("/*"):
            folder = entry.removesuffix("/*")
            pages = sorted(str(path.relative_to(DOCS)) for path in (DOCS / folder).glob("*.md"))
            found.append({folder.capitalize(): [f"{folder}/index.md", *pages]})
        elif (DOCS / entry).exists():
            found.append(entry)
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the linked files outside of docs/, and a list of the decisions."""
    for path, uri in PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / path).read_text()))
    linked = {
        target
        for file in files.documentation_pages()
        for _, _, link in LINK.findall(file.content_string)
        if (target := _target(file.src_uri, link)) and not target.startswith("docs/") and target not in PAGES
    }
    for target in sorted(linked):
        if (ROOT / target).is_file():
            language, text = LANGUAGES.get(Path(target).suffix, "text"), (ROOT / target).read_text()
            page = f"# {target}\n\n~~~~{language}\n{text}~~~~\n"
            files.append(File.generated(config, f"source/{target}.md", content=page))
    files.append(File.generated(config, "decisions/index.md", content=site_parts.decisions(DOCS / "decisions")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make the generated parts of a page, and let its links lead to pages of the site."""
    uri = page.file.src_uri
    for name, part in site_parts.PARTS.items():
        if (mark := f"<!-- generated: {name} -->") in markdown:
            markdown = markdown.replace(mark, part())
    if uri.startswith("source/"):
        page.meta["search"] = {"exclude": True}
        return markdown
    if 'title="Structured Streaming"' in markdown:
        page.meta["hide"] = ["toc"]  # the programs side by side need its place
    pieces = CODE.split(markdown)  # every second one is code
    pieces[::2] = [LINK.sub(lambda match: _rewritten(match, uri, files), piece) for piece in pieces[::2]]
    return "".join(pieces)


def _target(uri: str, link: str) -> str | None:
    """Return the path in the repository to which a link of a page leads; None if it leads elsewhere."""
    path = link.partition("#")[0]
    if "://" in link or link.startswith("mailto:") or not path:
        return None
    origins = {page: source for source, page in PAGES.items()}
    folder = posixpath.dirname(origins.get(uri, f"docs/{uri}"))
    return posixpath.normpath(posixpath.join(folder, path))


def _rewritten(match: re.Match[str], uri: str, files: Files) -> str:
    image, text, link = match.groups()
    target = _target(uri, link)
    if target is None:
        return match[0]
    anchor = "#" + link.partition("#")[2] if "#" in link else ""
    if target in PAGES:
        found = PAGES[target]
    elif target.startswith("docs/"):
        found = target.removeprefix("docs/")
        found = f"{found}/index.md" if (DOCS / found).is_dir() else found
    elif (ROOT / target).is_file():
        found = f"source/{target}.md"
    else:
        return text  # a folder of the repository: the site has none
    return f"{image}[{text}]({posixpath.relpath(found, posixpath.dirname(uri) or '.')}{anchor})"


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put drawn pictures into the page, so that they follow its colours; put paired programs side by side."""
    html = re.sub(r'<img alt="([^"]*)" src="([^"]*\.svg)"\s*/?>', lambda match: _drawn(match, page), html)
    block = r'<div class="[^"]*highlight[^"]*"><span class="filename">{}</span>(?:(?!<div).)*</div>'
    pair = re.compile(f"({block.format('Structured Streaming')})\\s*({block.format('Falkirk')})", re.DOTALL)
    return pair.sub(r'<div class="side-by-side">\1\2</div>', html)


def _drawn(match: re.Match[str], page: Page) -> str:
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page.url), match[2]))
    svg = (DOCS / path).read_text()
    return f'<figure class="drawn">{svg.replace("<svg ", f"""<svg role="img" aria-label="{match[1]}" """, 1)}</figure>'
