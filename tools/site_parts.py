"""The parts of the site that are made from code: the conditions, the command line, the list of decisions."""

import html
import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import click

import falkirk as fk
from falkirk.cli import main
from falkirk.errors import FalkirkError
from falkirk.errors.condition import Condition
from falkirk.errors.conditions import catalogue

OPERATIONS = Path(__file__).parents[1] / "docs" / "operations.md"
FIELD = re.compile(r"\{(\w+)[^{}]*\}")


def conditions() -> str:
    """Return a section for each condition: its class, its texts, what to do, and the row of operations.md."""
    found: dict[str, list[Condition[FalkirkError]]] = defaultdict(list)
    for _, condition in catalogue():
        found[condition.name].append(condition)
    advice = dict(_advice(OPERATIONS.read_text()))
    sections = []
    for name in sorted(found):
        kind = found[name][0].kind.__name__
        of_fk = f"`fk.{kind}`" if kind in fk.__all__ else f"`{kind}`"
        texts = [
            f"- {_text(condition.message[:1].upper() + condition.message[1:])}"
            + (f" *{_text(condition.hint)}*" if condition.hint else "")
            for condition in found[name]
        ]
        heading = f"## `{name}` {{ #{name.lower()} }}"
        parts = [heading, f"Class {of_fk}.", advice.get(name, ""), "\n".join(texts)]
        sections.append("\n\n".join(part for part in parts if part))
    return "\n\n".join(sections)


def _text(template: str) -> str:
    """Return a template of a message as Markdown: fields in angle brackets, and no markup of its own."""
    shown = FIELD.sub(lambda match: f"⟨{match[1].replace('_', ' ')}⟩", template).replace("{{", "{").replace("}}", "}")
    return re.sub(r"([*_`\[\]<>|])", r"\\\1", html.escape(shown, quote=False))


def _advice(page: str) -> Iterator[tuple[str, str]]:
    """Yield the conditions in the tables of operations.md with the text beside them."""
    for row in re.findall(r"^\| (`[A-Z_`, ]+) \| (.*) \|$", page, re.MULTILINE):
        for name in re.findall(r"`([A-Z_]+)`", row[0]):
            text = re.sub(r"\]\(#", "](operations.md#", row[1])
            yield name, f"{text[0].upper()}{text[1:].removesuffix('.')}."


def commands() -> str:
    """Return a section for each command of `falkirk`: usage, help and options, as click knows them."""
    return "\n\n".join(_command(main, click.Context(main, info_name="falkirk")))


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    if context.parent is not None or not isinstance(command, click.Group):
        yield f"## `{context.command_path}` {{ #{context.command_path.replace(' ', '-')} }}"
    yield f"    {' '.join([context.command_path, *command.collect_usage_pieces(context)])}"
    yield re.sub(r"(?<=\S)\n(?=\S)", " ", inspect.cleandoc(command.help or ""))
    rows = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if isinstance(parameter, click.Option) and record is not None and "--help" not in parameter.opts:
            rows.append(f"| `{record[0]}` | {_cell(record[1])} |")
    if rows:
        yield "| option | meaning |\n|---|---|\n" + "\n".join(rows)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _command(below, click.Context(below, info_name=name, parent=context))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def decisions(folder: Path) -> str:
    """Return a page that lists the decisions, by their titles."""
    titles = [
        (path.name, path.read_text().partition("\n")[0].removeprefix("# ")) for path in sorted(folder.glob("*.md"))
    ]
    rows = "\n".join(f"- [{title}]({name})" for name, title in titles)
    return (
        f"# Decisions\n\nEach record has the problem, the choice, the rejected alternatives, and the price.\n\n{rows}\n"
    )


#: The parts by the names that pages use: `<!-- generated: NAME -->`.
PARTS: dict[str, Callable[[], str]] = {"conditions": conditions, "commands": commands}
