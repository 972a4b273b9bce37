"""The board: a page gets each part once, and after a lost connection only what has changed since."""

import json
from typing import Any

from falkirk.user_tools.commands.dashboard.board import Board

Event = tuple[str, str, Any]


def read(board: Board, last_id: str = "", *, parts: int) -> list[Event]:
    """Return the next events of a new stream: id, name, content."""
    stream = board.stream(last_id, beat_s=0.01, parts_max=parts)
    return [event for block in stream if (event := parsed(block)) is not None]


def parsed(block: bytes) -> Event | None:
    fields = dict(line.split(": ", 1) for line in block.decode().splitlines() if not line.startswith(":") and line)
    return (fields["id"], fields["event"], json.loads(fields["data"])) if "event" in fields else None


def test_a_new_page_gets_all_parts_in_the_order_of_their_changes() -> None:
    board = Board()
    board.publish("graph", {"nodes": []})
    board.publish("now", {"at_s": 1})
    board.publish("graph", {"nodes": [1]})
    assert [event[1:] for event in read(board, parts=2)] == [("now", {"at_s": 1}), ("graph", {"nodes": [1]})]


def test_after_a_lost_connection_a_page_gets_only_what_has_changed() -> None:
    board = Board()
    board.publish("graph", {"nodes": []})
    board.publish("now", {"at_s": 1})
    last = read(board, parts=2)[-1][0]
    board.publish("now", {"at_s": 1})  # the same: no change
    board.publish("events", ["restart"])
    assert [event[1:] for event in read(board, last, parts=1)] == [("events", ["restart"])]


def test_the_past_of_latencies_goes_only_to_a_new_page() -> None:
    board = Board()
    board.publish("now", 1)
    last = read(board, parts=1)[-1][0]
    board.publish("latency", [1, 2], quiet=True)
    board.publish("now", 2)
    assert [event[1] for event in read(board, last, parts=1)] == ["now"]
    assert [event[1] for event in read(board, parts=2)] == ["latency", "now"]


def test_an_id_of_another_process_or_of_nobody_counts_for_nothing() -> None:
    former, board = Board(), Board()
    for each in (former, board):
        each.publish("now", 1)
    board.publish("graph", 2)
    for last in (read(former, parts=1)[-1][0], "x", "-", "-1", f"{board._process}-²", f"{board._process}-99999"):
        assert len(read(board, last, parts=2 if "99999" not in last else 0)) == (2 if "99999" not in last else 0)


def test_a_slow_page_gets_the_newest_version_and_nothing_is_kept_for_it() -> None:
    board = Board()
    board.publish("now", 0)
    stream = board.stream("", beat_s=0.01)
    assert next(stream).startswith(b"retry")
    assert parsed(next(stream))[2] == 0  # type: ignore[index]
    for n in range(1, 1000):
        board.publish("now", n)
    found = next(stream)
    assert parsed(found)[2] == 999  # type: ignore[index]
    assert board.is_watched
    stream.close()  # type: ignore[attr-defined]
    assert not board.is_watched


def test_signs_of_life_and_the_end() -> None:
    board = Board()
    stream = board.stream("", beat_s=0.01)
    assert [next(stream), next(stream)] == [b"retry: 1000\n\n", b": still here\n\n"]
    board.close()
    assert [*stream] == []


def test_line_ends_in_a_record_are_no_line_ends_of_the_stream() -> None:
    board = Board()
    board.publish("events", ["a\n\nevent: owned\ndata: 1\r\n\u2028"])
    (event,) = read(board, parts=1)
    assert event[1:] == ("events", ["a\n\nevent: owned\ndata: 1\r\n\u2028"])
