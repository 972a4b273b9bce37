"""Decisions: stores values that are fixed before they are used, and the Ξ of checkpoints that Spark does not record."""

import secrets
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import sqlalchemy as sql

from falkirk.errors import StoreError
from falkirk.errors.conditions.decision_store import DECISION_CONTRADICTED
from falkirk.kafka_client.signing import SigningKey
from falkirk.recovery.decision_store.part import Part
from falkirk.recovery.decision_store.tables import checkpoints, decisions, regions, retained, voids
from falkirk.recovery.decision_store.values import CheckpointRecord, Decision, ForgottenEpochs, dump, load
from falkirk.theory.ids import CheckpointNumber, EpochNumber, LogId

#: Less than any number of a decision or a checkpoint.
ANY = -(1 << 63)


#: The kind of decision with the sum of a batch's forgotten epochs.
_FORGOTTEN = "forgotten epochs"
#: The kind and name of the decision that holds the secret by which this home signs its records.
_SIGNING = ("signing", "key")
_SECRET_BYTES = 32


class DecisionStore(Part):
    """The part of the store for batches: their epochs, states and other records."""

    def record_decision(self, kind: str, name: str, number: int, content: object) -> None:
        """Record a decision, before anything is done that depends on it. Repeating the same one changes nothing.

        Raises: StoreError: `DECISION_CONTRADICTED`: another one is recorded, and stays valid.
        """
        text = dump(content)
        same = (decisions.c.kind == kind) & (decisions.c.name == name) & (decisions.c.number == number)
        with self._writing() as db:
            known = db.execute(sql.select(decisions.c.content).where(same)).scalar()
            if known is None:
                made = {"kind": kind, "name": name, "number": number, "content": text, "made_at_s": self._clock()}
                db.execute(decisions.insert().values(**made))
            elif known != text:
                raise self._contradicted(f"{kind} {name!r} {number}", known, text)

    def decision(self, kind: str, name: str, number: int) -> Decision | None:
        """Return a decision, or None if there is none yet."""
        found = self._decisions(
            (kind, name, number),
            lambda: (decisions.c.kind == kind, decisions.c.name == name, decisions.c.number == number),
        )
        return found[0] if found else None

    def decisions(self, kind: str, name: str, first: int = ANY) -> tuple[Decision, ...]:
        """Return the decisions of a kind about a name, sorted by number, from `first` on."""
        return self._decisions(
            (kind, name, "from", first),
            lambda: (decisions.c.kind == kind, decisions.c.name == name, decisions.c.number >= first),
        )

    def decisions_of(self, kind: str) -> dict[str, Any]:
        """Return the content of each name's first decision of a kind."""
        found = self._decisions((kind,), lambda: (decisions.c.kind == kind, decisions.c.number == 0))
        return {decision.name: decision.content for decision in found}

    def signing_key(self) -> SigningKey:
        """Return the secret with which this home signs its records. The first call makes it."""
        kind, name = _SIGNING
        known = self.decision(kind, name, 0)
        if known is None:
            self._make_signing_key(kind, name)
            known = self.decision(kind, name, 0)
            assert known is not None, "_make_signing_key records a key"
        secret, since_birth = known.content["secret"], known.content["since_birth"]
        return SigningKey(secret=bytes.fromhex(secret), since_birth=since_birth is True)

    def _make_signing_key(self, kind: str, name: str) -> None:
        with self._writing() as db:
            if db.execute(sql.select(decisions.c.number).where(decisions.c.kind == kind)).first() is not None:
                return  # another process has made it
            is_new = all(db.execute(sql.select(table).limit(1)).first() is None for table in (decisions, regions))
            content = dump({"secret": secrets.token_hex(_SECRET_BYTES), "since_birth": is_new})
            made = {"kind": kind, "name": name, "number": 0, "content": content, "made_at_s": self._clock()}
            db.execute(decisions.insert().values(**made))

    def newest_decision(self, kind: str, name: str) -> Decision | None:
        """Return the decision with the greatest number, or None if there is none."""
        found = self._decisions(
            (kind, name, "newest"), lambda: (decisions.c.kind == kind, decisions.c.name == name), newest=True
        )
        return found[0] if found else None

    def _decisions(
        self, question: tuple[str | int, ...], conditions: Callable[[], tuple[sql.ColumnElement[bool], ...]], *,
        newest: bool = False,
    ) -> tuple[Decision, ...]:  # fmt: skip
        def query() -> sql.Select[Any]:
            asked = sql.select(decisions).where(*conditions())
            return asked.order_by(decisions.c.number.desc()).limit(1) if newest else asked.order_by(decisions.c.number)

        return self._rows(("decisions", *question), query, _decision)

    def add_checkpoint(self, processor: str, number: EpochNumber, metadata: object) -> None:
        """Record that a checkpoint is durable, with its Ξ. Only then may anything depend on it.

        Raises: StoreError: `DECISION_CONTRADICTED`: the checkpoint is recorded with another Ξ.
        """
        text = dump(metadata)
        same = (checkpoints.c.processor == processor) & (checkpoints.c.number == number)
        with self._writing() as db:
            known = db.execute(sql.select(checkpoints.c.metadata).where(same)).scalar()
            if known is None:
                made = {"processor": processor, "number": number, "made_at_s": self._clock(), "metadata": text}
                db.execute(checkpoints.insert().values(**made))
            elif known != text:
                raise self._contradicted(f"checkpoint {processor}@{number}", known, text)

    def replace_checkpoint(self, processor: str, number: EpochNumber, known: object, metadata: object) -> None:
        """Record a Ξ that adds facts to the `known` one of a checkpoint.

        Raises: StoreError: `DECISION_CONTRADICTED`: the recorded one is not `known`, or there is none.
        """
        before, text = dump(known), dump(metadata)
        same = (checkpoints.c.processor == processor) & (checkpoints.c.number == number)
        with self._writing() as db:
            found = db.execute(sql.select(checkpoints.c.metadata).where(same)).scalar()
            if found not in (before, text):
                raise self._contradicted(f"checkpoint {processor}@{number}", found or dump(None), text)
            db.execute(checkpoints.update().where(same).values(metadata=text))

    def checkpoints(self, processor: str, first: int = ANY) -> tuple[CheckpointRecord, ...]:
        """Return the checkpoints of a processor, oldest checkpoint first, from `first` on."""

        def query() -> sql.Select[Any]:
            mine = (checkpoints.c.processor == processor) & (checkpoints.c.number >= first)
            return sql.select(checkpoints).where(mine).order_by(checkpoints.c.number)

        return self._rows(("checkpoints", processor, first), query, _checkpoint)

    def forget_epochs(self, kind: str, name: str, below: EpochNumber) -> None:
        """Delete the decisions about a name below this number, and the checkpoints that followed them.

        The sum of the results in these checkpoints stays: see `forgotten_epochs`.
        """
        with self._writing() as db:
            _add_forgotten(db, kind, name, below, self._clock())
            db.execute(
                decisions.delete().where(decisions.c.kind == kind, decisions.c.name == name, decisions.c.number < below)
            )
            db.execute(checkpoints.delete().where(checkpoints.c.processor == name, checkpoints.c.number < below))

    def forgotten_epochs(self, name: str) -> ForgottenEpochs | None:
        """Return the sum of the epochs of a batch that were forgotten; None if there are none with a checkpoint."""
        known = self.decision(_FORGOTTEN, name, 0)
        return None if known is None else ForgottenEpochs(**known.content)

    def retain_from(self, processor: str, number: CheckpointNumber) -> None:
        """Record the oldest checkpoint of a processor that is kept, in place of the former record."""
        with self._writing() as db:
            db.execute(retained.delete().where(retained.c.processor == processor))
            db.execute(retained.insert().values(processor=processor, number=number))

    def retained_from(self, processor: str) -> CheckpointNumber | None:
        """Return what `retain_from` has recorded; None: nothing was collected yet."""
        with self._reading() as db:
            found = db.execute(sql.select(retained.c.number).where(retained.c.processor == processor)).scalar()
        return None if found is None else CheckpointNumber(found)

    def _contradicted(self, what: str, known: str, asked: str) -> StoreError:
        return DECISION_CONTRADICTED.error(
            where=self._database.where,
            known=load(known),
            asked=load(asked),
            what=what,
            known_shown=known,
            asked_shown=asked,
        )


def _add_forgotten(db: sql.Connection, kind: str, name: str, below: int, now_s: float) -> None:
    """Add the checkpoints of a batch below a number to the sum of forgotten epochs, in an open transaction."""
    mine = (decisions.c.kind == kind) & (decisions.c.name == name) & (decisions.c.number < below)
    first = db.execute(sql.select(sql.func.min(decisions.c.number)).where(mine)).scalar()
    gone = sql.select(checkpoints.c.number, checkpoints.c.metadata)
    made = db.execute(gone.where(checkpoints.c.processor == name, checkpoints.c.number < below)).all()
    if first is None or not made:
        return
    log = LogId.of_epochs(name)
    ranges = db.execute(sql.select(voids.c.first, voids.c.last_exclusive).where(voids.c.topic == log)).all()
    rows = [load(m) for number, m in made if not any(f <= number < e for f, e in ranges)]
    same = (decisions.c.kind == _FORGOTTEN) & (decisions.c.name == name)
    text = db.execute(sql.select(decisions.c.content).where(same)).scalar()
    before = ForgottenEpochs(first=first, below=first) if text is None else ForgottenEpochs(**load(text))
    content = ForgottenEpochs(
        first=before.first,
        below=below,
        epochs=before.epochs + len(rows),
        rows=before.rows + sum(int(r.get("rows", 0)) for r in rows if isinstance(r, dict)),
    )
    db.execute(decisions.delete().where(same))
    made_now = {"kind": _FORGOTTEN, "name": name, "number": 0, "content": dump(asdict(content)), "made_at_s": now_s}
    db.execute(decisions.insert().values(**made_now))


def _decision(row: sql.Row[Any]) -> Decision:
    content = load(row.content)
    return Decision(kind=row.kind, name=row.name, number=row.number, content=content, made_at_s=row.made_at_s)


def _checkpoint(row: sql.Row[Any]) -> CheckpointRecord:
    metadata = load(row.metadata)
    number = EpochNumber(row.number)
    return CheckpointRecord(processor=row.processor, number=number, made_at_s=row.made_at_s, metadata=metadata)
