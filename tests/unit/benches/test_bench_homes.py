"""The bench that compares homes: its applications and its options."""

import pytest
from click.testing import CliRunner

from benchmarks import homes
from benchmarks.__main__ import bench
from benchmarks.homes import HomesSettings
from benchmarks.recovery import COUNT


@pytest.mark.parametrize("text", [COUNT, homes.TALLIES])
def test_the_applications_of_both_homes_are_python(text: str) -> None:
    settings = HomesSettings(data="s3a://bucket/bench/", store="postgresql://user@database/falkirk")
    for place in settings.places().values():
        written = text.replace("{rows}", "10").format(source="a", sink="b", place=place)
        compile(written, "app.py", "exec")
        assert ("s3a://bucket/bench/" in written) == bool(place)
        assert settings.store not in written, "the URL may have a password"


@pytest.mark.parametrize("given", [("--data", "s3a://bucket/bench"), ("--store", "postgresql://user@database/falkirk")])
def test_a_home_elsewhere_needs_its_data_and_its_decisions(given: tuple[str, str]) -> None:
    ended = CliRunner().invoke(bench, ["recovery", *given])
    assert ended.exit_code == 2
    assert "needs" in ended.output
