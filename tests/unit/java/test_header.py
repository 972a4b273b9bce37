"""The header in Java is read as in Python, byte by byte, and both refuse the same values."""

import subprocess
from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from falkirk.errors import LogError
from falkirk.kafka_client.header import BYTES_MAX, TAG_DIGITS, Header
from falkirk.theory.stamp import Stamp
from tests.strategies import examples
from tests.unit.java.conftest import Command

Ask = Callable[[str], str]

numbers = st.integers(0, 12) | st.integers(0, 2**63 - 1)
headers = st.builds(
    Header,
    application=st.text("0123456789abcdef", min_size=8, max_size=8),
    incarnation=numbers,
    stamp=st.builds(Stamp, numbers, numbers, numbers, st.lists(numbers, max_size=4).map(tuple)),
    state_partition=numbers,
)
tags = st.just("") | st.text("0123456789abcdef", min_size=TAG_DIGITS, max_size=TAG_DIGITS).map(lambda tag: f"/{tag}")

#: Texts that are almost parts of a header.
odd = st.sampled_from(
    ["", "00", "01", "+1", "-1", " 1", "1 ", "1_0", "0x1", "1.", ".1", "1/", "٣", "²", str(2**63), "9" * 19, "1" * 20]
)
almost_numbers = st.one_of(numbers.map(str), numbers.map(str), numbers.map(str), odd)
almost_headers = st.builds(
    lambda application, incarnation, stamp, state, tag: f"{application}/{incarnation}/{'.'.join(stamp)}/{state}{tag}",
    st.sampled_from(["deadbeef", "deadbeef", "01234567", "deadbee", "deadbeef0", "DEADBEEF", "deadbeeg", ""]),
    almost_numbers,
    st.lists(almost_numbers, min_size=2, max_size=6),
    almost_numbers,
    tags | st.sampled_from(["/", "/0", f"/{'0' * 23}", f"/{'0' * 25}", f"/{'A' * 24}", f"/{'0' * 24}/", "\n", "\0"]),
)


@pytest.fixture(scope="module")
def java(java_tests: Command) -> Iterator[Ask]:
    """A JVM that answers one line with one line."""
    with subprocess.Popen(java_tests("HeaderLines"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as jvm:
        assert jvm.stdin is not None
        assert jvm.stdout is not None

        def ask(line: str) -> str:
            assert jvm.stdin is not None
            assert jvm.stdout is not None
            print(line, file=jvm.stdin, flush=True)
            return jvm.stdout.readline().removesuffix("\n")

        yield ask
        jvm.stdin.close()


def parts(header: Header) -> str:
    """Return the parts of a header as the JVM prints them."""
    stamp = header.stamp.encode().replace(".", ",")
    return f"{header.application} {header.incarnation} {stamp} {header.state_partition}"


def python_decodes(value: bytes) -> str:
    try:
        return parts(Header.decode(value))
    except LogError:
        return "refused"


@settings(deadline=None)  # a JVM answers, on a machine that may be busy
@given(headers, tags)
def test_java_reads_what_python_writes(java: Ask, header: Header, tag: str) -> None:
    value = header.encode() + tag.encode()
    assert java(value.hex()) == python_decodes(value) == parts(header)


@settings(deadline=None, max_examples=examples(150))
@given(almost_headers)
@example("deadbeef/03/0.2.17/5")
@example("deadbeef/3/0.2.017/5")
@example("deadbeef/3/0.2/5")
def test_java_and_python_refuse_the_same_odd_headers(java: Ask, text: str) -> None:
    value = text.encode()
    assert java(value.hex()) == python_decodes(value)


@settings(deadline=None)
@given(headers, tags, st.lists(st.tuples(st.integers(0, 120), st.binary(max_size=3), st.integers(0, 3)), max_size=3))
def test_java_and_python_refuse_the_same_changed_headers(
    java: Ask, header: Header, tag: str, changes: list[tuple[int, bytes, int]]
) -> None:
    value = header.encode() + tag.encode()
    for place, added, removed in changes:
        value = value[:place] + added + value[place + removed :]
    assert java(value.hex()) == python_decodes(value)


@settings(deadline=None)
@given(st.text("0123456789abcdef/.", max_size=60).map(str.encode) | st.binary(max_size=BYTES_MAX + 1))
@example(b"deadbeef/3/0.2.9223372036854775808/5")
@example(b"deadbeef/3/0.2.9999999999999999999/5")
@example(b"deadbeef/3/0.2.17" + b".1" * 190 + b"/5")
@example(b"deadbeef/3/0.2.17" + b".1" * 190 + b"/55")
@example(b"deadbeef/3/0.2.17" + b".1" * 190 + b"/555")
@example("deadbeef/3/0.2.17/٣".encode())
def test_java_and_python_refuse_the_same_values(java: Ask, value: bytes) -> None:
    assert java(value.hex()) == python_decodes(value)
