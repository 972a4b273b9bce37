"""Crowd: users who send queries to the search engine, read the answers, think, and ask again; and the prompt's user."""

import json
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from demo.load import FLUSH_S, consumer_of, producer_of
from demo.modules import Event
from demo.pages import words
from demo.visitor import Visitor

NAMES = (
    "ada", "alan", "barbara", "donald", "edsger", "frances", "grace", "jean", "john", "katherine", "ken", "leslie",
    "lynn", "margaret", "niklaus", "radia", "robin", "sophie", "tim", "tony",
)  # fmt: skip
#: The average number of seconds between an answer and the same user's next question.
THINKS_S = 1.5
#: The least length of a word in a question.
LETTERS_MIN = 5
#: One question in this many contains no word of any module.
IN_VAIN_EVERY = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question without an answer yet: its user, its text, and when it was asked."""

    user: str
    text: str
    at_s: float


class Crowd(threading.Thread):
    """Sends questions until `silent` is set, and reads answers until `stopping` is set. Each user waits for the answer,
    however long it takes.

    Args: users: their number. sent: returns the modules that can be asked about. on_answer: receives each answer with
        its question and its latency in seconds. visitor: posts the questions of the first user over HTTP.
    Attributes: asked: all questions, by id. answered: the ids of questions with an answer. received: the number of
        answers, duplicates included.
    """

    def __init__(
        self, bootstrap: str, *, users: int, partitions: int, sent: Callable[[], list[Event]], seed: int | None = None,
        on_answer: Callable[[Question, dict[str, Any], float], None] = lambda *_: None,
        visitor: Visitor | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name="demo-crowd", daemon=True)
        self._producer, self._consumer = producer_of(bootstrap), consumer_of(bootstrap, "answers", partitions)
        self._sent, self._random, self._on_answer = sent, random.Random(seed), on_answer
        self._visitor = visitor
        self._lock = threading.Lock()
        self._users = [name_of(i) for i in range(users)]
        self._due_s = {user: time.monotonic() + self._thinks_s() for user in self._users}
        self._recent: deque[tuple[float, float]] = deque()
        self.silent, self.stopping = threading.Event(), threading.Event()
        self.asked: dict[str, Question] = {}
        self.answered: set[str] = set()
        self.latencies_s: list[float] = []
        self.received = 0
        self.last_at_s = 0.0

    @property
    def waiting(self) -> int:
        """The number of questions without an answer."""
        return len(self.asked) - len(self.answered)

    @property
    def words_asked(self) -> int:
        """The number of words in all questions; a word counts once per question."""
        return sum(len(set(words(question.text))) for question in list(self.asked.values()))

    def ask(self, user: str, text: str) -> str:
        """Send a question; return its id."""
        with self._lock:
            number = str(len(self.asked))
            self.asked[number] = Question(user=user, text=text, at_s=time.monotonic())
        question = {"id": number, "user": user, "text": text}
        if self._visitor is not None and user in self._users[:1]:
            self._visitor.ask(question)
            return number
        self._producer.produce("queries", key=user, value=json.dumps(question))
        self._producer.poll(0)
        return number

    def run(self) -> None:
        """Send questions and read answers."""
        while not self.stopping.is_set():
            for message in self._consumer.consume(1, 0.05):  # with more, it would wait for them
                if message.error() is None:
                    self._take(json.loads(message.value() or b"{}"))
            now_s = time.monotonic()
            for user in [u for u, at_s in self._due_s.items() if at_s <= now_s]:
                if not self.silent.is_set() and (text := self._idea()):
                    del self._due_s[user]
                    self.ask(user, text)
        self._consumer.close()
        self._producer.flush(FLUSH_S)

    def _take(self, answer: dict[str, Any]) -> None:
        now_s = time.monotonic()
        self.received += 1
        self.last_at_s = now_s
        question = self.asked.get(answer["id"])
        if question is None or answer["id"] in self.answered:
            return  # the judge reports it
        self.answered.add(answer["id"])
        self.latencies_s.append(now_s - question.at_s)
        self._recent.append((now_s, now_s - question.at_s))
        if question.user in self._users:
            self._due_s[question.user] = now_s + self._thinks_s()
        self._on_answer(question, answer, now_s - question.at_s)

    def recent_s(self, window_s: float = 10.0) -> list[float]:
        """Return the latencies of the answers of the last seconds."""
        horizon = time.monotonic() - window_s
        while self._recent and self._recent[0][0] < horizon:
            self._recent.popleft()
        return [latency_s for _, latency_s in list(self._recent)]

    def _thinks_s(self) -> float:
        return self._random.expovariate(1 / THINKS_S)

    def _idea(self) -> str:
        """Return the text of a question: a word or two of a module; empty while there are no modules."""
        modules = self._sent()
        if not modules:
            return ""
        if self._random.randrange(IN_VAIN_EVERY) == 0:
            return "".join(self._random.choices("aeioubdfgklmnprst", k=9))
        module = self._random.choice(modules)
        said = sorted({w for w in words(f"{module.name} {module.text}") if len(w) >= LETTERS_MIN})
        return " ".join(self._random.sample(said, min(len(said), self._random.randint(1, 2))))


def name_of(number: int) -> str:
    """Return the name of a user by number."""
    return NAMES[number % len(NAMES)] + (str(number // len(NAMES) + 1) if number >= len(NAMES) else "")
