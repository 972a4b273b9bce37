"""Consent: the effect of a rollback that the page showed when its user agreed, compared with the effect now.

A user agrees to certain checkpoints, and to contradict certain published results. Results of other topics, or a cut
whose checkpoints are others now, need another consent. A running application publishes more while its user reads. So
the number of results in a topic may have grown, but only for a short time.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from falkirk.errors.conditions.commands import PREVIEW_OUTDATED
from falkirk.user_tools.commands.history.application import Preview

#: A consent must come within this time after its preview.
CONSENT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Consented:
    """The effect that the page showed.

    Args: checkpoints: each region's target. outside: as in `Preview`. at_s: its time.
    """

    checkpoints: Mapping[str, int]
    outside: Mapping[str, int]
    at_s: float

    @classmethod
    def of(cls, shown: Mapping[str, object]) -> "Consented":
        """Return the consent in the body of a request. Raises: KeyError, TypeError: it has another form."""
        checkpoints, outside, at_s = shown["checkpoints"], shown["outside"], shown["at_s"]
        if isinstance(at_s, bool) or not isinstance(at_s, int | float):
            raise TypeError
        return cls(checkpoints=_numbers(checkpoints), outside=_numbers(outside), at_s=float(at_s))

    def require_same(self, cut: str, now: Preview, now_s: float) -> None:
        """Refuse a rollback whose effect differs from the one that was shown. Raises: HomeError: `PREVIEW_OUTDATED`."""
        if (reason := self._difference(now, now_s)) is not None:
            raise PREVIEW_OUTDATED.error(cut=cut, reason=reason)

    def _difference(self, now: Preview, now_s: float) -> str | None:
        if {move.region: move.to.number for move in now.moves} != self.checkpoints:
            return "regions go back to other checkpoints"
        for topic in sorted({*now.outside, *self.outside}):
            shown, found = self.outside.get(topic, 0), now.outside.get(topic, 0)
            if found < shown or (found and not shown):
                return f"it makes {found:,} published results in {topic} invalid, and not {shown:,}"
        if self.outside and not 0 <= now_s - self.at_s <= CONSENT_S:
            return f"the number of published results is more than {CONSENT_S:.0f} s old"
        return None


def _numbers(found: object) -> Mapping[str, int]:
    if not isinstance(found, dict) or not all(type(number) is int for number in found.values()):
        raise TypeError
    return found
