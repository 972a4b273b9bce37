"""Documents of the demo: they have a fixed order, are divided at headings, and unreadable ones are skipped."""

from itertools import islice
from pathlib import Path

import pytest

from demo.load import percentiles_ms
from demo.pages import CHARACTERS_MAX, pages, words
from falkirk.errors import MachineError


def test_words_are_lower_case_letters_digits_and_underscores() -> None:
    assert words("Exactly-once, in 2 ms: snake_case; naïve") == [
        "exactly", "once", "in", "2", "ms", "snake_case", "na", "ve",
    ]  # fmt: skip


def test_a_file_is_cut_at_its_headings(tmp_path: Path) -> None:
    file = tmp_path / "articles.txt"
    file.write_text(" \n = Lobster = \n \n A large one . \n = = Life cycle = = \n Eggs . \n = Newt = \n Small . \n")
    found = list(pages(file))
    assert [page.name.partition(" ")[2] for page in found] == ["Lobster", "Lobster / Life cycle", "Newt"]
    assert [words(page.text) for page in found] == [["a", "large", "one"], ["eggs"], ["small"]]


def test_sections_of_one_title_have_names_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "twice.txt"
    file.write_text("= Same =\none\n= Same =\ntwo\n")
    assert len({page.name for page in pages(file)}) == 2


def test_a_file_without_headings_is_one_page(tmp_path: Path) -> None:
    file = tmp_path / "plain.txt"
    file.write_text("x = 1\ny = 2\n")
    assert [words(page.text) for page in pages(file)] == [["x", "1", "y", "2"]]


def test_a_folder_gives_a_page_per_text_file_with_words(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name, text in {"b.txt": "two", "a.md": "one", "sub/c.txt": "three", "empty.txt": " … ", "d.bin": "no"}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 au lait")
    assert [page.name for page in pages(tmp_path)] == ["a.md", "b.txt", "latin.txt", "sub/c.txt"]


def test_a_long_page_stays_below_the_size_of_a_record(tmp_path: Path) -> None:
    file = tmp_path / "long.txt"
    file.write_text("𝛼 word " * CHARACTERS_MAX)
    (page,) = pages(file)
    assert len(page.text.encode()) < 1_000_000


def test_a_page_whose_words_are_all_cut_off_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "late.txt"
    file.write_text("." * CHARACTERS_MAX + "word")
    assert list(pages(file)) == []


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MachineError) as raised:
        next(pages(tmp_path / "nothing"))
    assert raised.value.condition == "INPUT_MISSING"


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python installation of a few modules, good and bad."""
    stdlib, packages = tmp_path / "lib", tmp_path / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (stdlib / "good.py").write_text('"""About it."""\ndef f():\n    """What f does."""\nclass C:\n    x = 1\n')
    (stdlib / "silent.py").write_text("x = 1\n")
    (stdlib / "broken.py").write_text('"""Not Python 3."""\nprint "x"\n')
    (stdlib / "half.py").write_text('"""Half a pair \\ud800 here."""\n')
    (packages / "good.py").write_text('"""Shadowed by the standard library."""\n')
    (packages / "other").mkdir()
    (packages / "other" / "__init__.py").write_text('"""An invalid \\d escape."""\n')
    roots = {"stdlib": str(stdlib), "purelib": str(packages), "platlib": str(packages)}
    monkeypatch.setattr("sysconfig.get_paths", lambda: roots)
    return stdlib


def test_docstrings_of_what_can_be_parsed(library: Path) -> None:
    found = {page.name: page.text for page in pages()}
    assert list(found) == ["good", "half", "other"]
    assert words(found["good"]) == ["about", "it", "what", "f", "does"]
    found["half"].encode()


def test_a_seed_gives_another_order_that_is_the_same_each_time(library: Path, tmp_path: Path) -> None:
    file = tmp_path / "many.txt"
    file.write_text("".join(f"= Title {i} =\nword{i}\n" for i in range(50)))
    for source in (None, tmp_path, file):
        orders = [[page.name for page in pages(source, seed=seed)] for seed in (None, 7, 7)]
        assert orders[1] == orders[2]
        assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]


def test_this_python_has_documents() -> None:
    first, again = ([page.name for page in islice(pages(), 30)] for _ in range(2))
    assert first == again
    assert len(set(first)) == 30


def test_percentiles_are_of_the_nearest_rank_and_end_with_the_greatest() -> None:
    assert percentiles_ms([]) == []
    assert percentiles_ms([0.003]) == [3.0] * 4
    assert percentiles_ms([i / 1000 for i in range(1, 101)]) == [pytest.approx(x) for x in (50.0, 95.0, 99.0, 100.0)]
