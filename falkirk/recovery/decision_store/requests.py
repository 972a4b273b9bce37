"""Requests: stores requests of commands to a running application, and its answers.

Any process may post a request. The application takes each one once, in the order of posting. If it dies after it took
a request, its successor settles it (`fail_taken`): a rollback was carried out if a recovery names it, and any other
request failed. A new owner fails the others as well: a rollback that somebody asked for days ago would take back what
was published since.

A sender may lose the answer to its request, or the store's answer to its post. If it repeats the request, it joins the
first one (`join_request`) until somebody has seen the answer.
"""

from collections.abc import Collection, Mapping

import sqlalchemy as sql

from falkirk.errors.conditions.decision_store import REQUEST_NOT_TAKEN
from falkirk.recovery.decision_store.part import Part
from falkirk.recovery.decision_store.tables import recoveries, requests
from falkirk.recovery.decision_store.values import Request, RequestState, dump, load, printable


class RequestStore(Part):
    """The part of the store through which commands reach a running application."""

    def post_request(self, kind: str, arguments: object) -> int:
        """Post a request to the running application; return the request's number."""
        text = dump(arguments)
        with self._writing() as db:
            number = int(db.execute(sql.select(sql.func.max(requests.c.request))).scalar() or 0) + 1
            db.execute(requests.insert().values(request=number, kind=kind, arguments=text, state="open"))
        return number

    def join_request(self, kind: str, arguments: Mapping[str, object], same: Collection[str]) -> tuple[int, bool]:
        """Return the newest request with the same arguments that did not fail and whose answer nobody has seen.

        If there is none, post one. Args: same: the names of the arguments to compare.
        Returns: the request's number, and whether it was already done.
        """
        text = dump(dict(arguments))
        with self._writing() as db:
            if (known := _unseen(db, kind, arguments, same)) is not None:
                return known.request, known.state == "done"
            number = int(db.execute(sql.select(sql.func.max(requests.c.request))).scalar() or 0) + 1
            db.execute(requests.insert().values(request=number, kind=kind, arguments=text, state="open"))
        return number, False

    def unseen_request(self, kind: str, arguments: Mapping[str, object], same: Collection[str]) -> int | None:
        """Return the number of the request that was done and that `join_request` would return; None: there is none."""
        with self._writing() as db:  # wait for its own commit, which may be late
            known = _unseen(db, kind, arguments, same)
        return known.request if known is not None and known.state == "done" else None

    def note_seen(self, request: int) -> None:
        """Record that the sender of a request has seen that it was done."""
        with self._writing() as db:
            mine = (requests.c.request == request, requests.c.state == "done")
            db.execute(requests.update().where(*mine).values(state="seen"))

    def take_request(self, kind: str) -> Request | None:
        """Take the oldest open request of a kind, so that no other process gets it; return None if there is none."""
        wanted = sql.select(requests).where(requests.c.state == "open", requests.c.kind == kind)
        oldest = wanted.order_by(requests.c.request).limit(1)
        with self._reading() as db:  # most calls find nothing, and then need no write
            if db.execute(oldest).first() is None:
                return None
        with self._writing() as db:
            row = db.execute(oldest).one_or_none()
            if row is None:
                return None
            db.execute(requests.update().where(requests.c.request == row.request).values(state="taken"))
            return _request(row, state="taken")

    def is_asked(self, kind: str) -> bool:
        """Return whether a request of this kind is open."""
        wanted = sql.select(requests.c.request).where(requests.c.state == "open", requests.c.kind == kind)
        with self._reading() as db:
            return db.execute(wanted.limit(1)).first() is not None

    def answer_request(self, request: int, answer: object, *, failed: bool = False) -> None:
        """Answer a request that was taken. Repeating the same answer changes nothing.

        Raises: StoreError: `REQUEST_NOT_TAKEN`: nobody has taken it, or it has another answer (perhaps from
            `fail_taken`).
        """
        text, state = dump(answer), "failed" if failed else "done"
        with self._writing() as db:
            row = db.execute(sql.select(requests).where(requests.c.request == request)).one_or_none()
            if row is not None and (row.state, row.answer) == (state, text):
                return
            if row is None or row.state != "taken":
                found = "unknown" if row is None else row.state
                raise REQUEST_NOT_TAKEN.error(where=self._database.where, request=request, found=found)
            db.execute(requests.update().where(requests.c.request == request).values(state=state, answer=text))

    def request(self, request: int) -> Request | None:
        """Return the present state of a request, without waiting; None if there is no such request."""
        with self._reading() as db:
            row = db.execute(sql.select(requests).where(requests.c.request == request)).one_or_none()
            return None if row is None else _request(row, state=row.state)

    def fail_taken(self, kind: str, reason: str, *, also_open: bool = False) -> None:
        """Fail every taken request of a kind, with the answer `{"reason": …}`. Other kinds may still be in progress.

        A host calls this before it takes its first request, because the process that took these is dead. A request
        that a recovery names was carried out, or the host's start has finished it: it is done, with the checkpoints to
        which the regions went as its answer, `{"goes": …}`.

        Args: also_open: fail those that nobody has taken as well. A new owner does: the application that was asked has
            ended, and nobody expects these requests any more.
        """
        states: tuple[RequestState, ...] = ("open", "taken") if also_open else ("taken",)
        answer, mine = dump({"reason": printable(reason)}), (requests.c.kind == kind, requests.c.state.in_(states))
        with self._writing() as db:
            taken = (requests.c.kind == kind, requests.c.state == "taken")
            for (number,) in db.execute(sql.select(requests.c.request).where(*taken)).all():
                found = db.execute(sql.select(recoveries.c.decided).where(recoveries.c.reason == asked_by(number)))
                if (decided := found.scalars().first()) is not None:
                    goes = dump({"goes": {name: to for name, to in load(decided).items() if to is not None}})
                    db.execute(requests.update().where(requests.c.request == number).values(state="done", answer=goes))
            db.execute(requests.update().where(*mine).values(state="failed", answer=answer))


def asked_by(request: int) -> str:
    """Return the reason of the recovery that carries out a request."""
    return f"asked for by request {request}"


def _unseen(
    db: sql.Connection, kind: str, arguments: Mapping[str, object], same: Collection[str]
) -> "sql.Row[tuple[object, ...]] | None":
    """Return the newest request with these arguments that did not fail, and whose answer nobody has seen."""
    wanted = (requests.c.kind == kind, requests.c.state.in_(("open", "taken", "done")))
    for row in db.execute(sql.select(requests).where(*wanted).order_by(requests.c.request.desc())):
        there = load(row.arguments)
        if isinstance(there, dict) and all(name in there and there[name] == arguments[name] for name in same):
            return row
    return None


def _request(row: "sql.Row[tuple[object, ...]]", *, state: str) -> Request:
    return Request(
        request=row.request,
        kind=row.kind,
        arguments=load(row.arguments),
        state=state,  # type: ignore[arg-type]  # only these methods write it
        answer=None if row.answer is None else load(row.answer),
    )
