"""Redaction: removes possible secrets from the user's code, so that an error or a plan may show it.

Errors, dead letters and the status quote the user's lines, and other people read them. Falkirk can't know which literal
is a secret. So it shows names, but hides every literal with one exception: an argument of a call that takes no secrets,
in code without words such as "password". This module imports nothing else of Falkirk, because Spark's workers receive
it.
"""

import io
import keyword
import re
import tokenize

#: Replaces a hidden literal.
HIDDEN = '"…"'
#: Calls that have names, columns, durations and schemas as arguments, but never a secret.
_HARMLESS = frozenset(
    re.findall(
        r"\w+",
        """source sink stream batch iterate add_processor Kafka Files Console Lazy Eager Ephemeral Snapshots LogSends
        Acknowledged FullHistory Latest select where filter withColumn withColumnRenamed drop dropDuplicates groupBy agg
        outputMode window session_window withWatermark join alias cast col expr latest explode count sum min max avg
        stateful sessions counted map_rows fixpoint distinct lookup latest_value array_distinct""",
    )
)
#: If a line or a statement contains such a word, in a name or a text, any of its literals may be a secret.
_SPEAKS_OF_SECRETS = re.compile(
    r"pass|pwd|secret|token|credential|private|auth(?!or)|sasl|jaas|api_?key|access_?key|bearer|cookie|salt|encrypt|decrypt|"
    r"://[^\s\"']*[@?]",
    re.IGNORECASE,
)
_USER_INFO = re.compile(r"(://)[^/\s\"'@]*(?::[^\s\"']*)?@")
_STRINGS = {
    tokenize.STRING,
    *(getattr(tokenize, n) for n in ("FSTRING_MIDDLE", "TSTRING_MIDDLE") if hasattr(tokenize, n)),
}
_QUOTE = re.compile("[\"'#]")


def redact(code: str) -> str:
    """Return Python code, such as a line or a statement, without comments and without literals that may be secrets.

    Each line keeps its number. A text that does not end is hidden from its start, with all code after it.
    """
    code = code.replace("\r\n", "\n").replace("\r", "\n")
    begins = [0, *(each.end() for each in re.finditer("\n", code))]
    speaks = _SPEAKS_OF_SECRETS.search(code) is not None
    shown: list[str] = []
    calls: list[str] = []
    place = 0
    name = ""
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type == tokenize.ERRORTOKEN and _QUOTE.match(token.string):
                break  # an unterminated text
            if token.type == tokenize.ENDMARKER or max(token.start[0], token.end[0]) > len(begins):
                break
            begin, end = (begins[row - 1] + column for row, column in (token.start, token.end))
            if token.type in _STRINGS:
                is_safe = not speaks and bool(calls) and calls[-1] in _HARMLESS
            else:
                is_safe = token.type != tokenize.NUMBER or not speaks
            text = code[begin:end]
            if token.type == tokenize.COMMENT:
                text = ""
            elif not is_safe:
                text = HIDDEN + "\n" * text.count("\n")
            shown += [code[place:begin], text]
            place = end
            if token.string in "([{" and token.string:
                calls.append(name if token.string == "(" else (calls[-1] if calls else ""))
            elif token.string in ")]}" and token.string and calls:
                calls.pop()
            is_name = token.type == tokenize.NAME and not keyword.iskeyword(token.string)
            name = token.string if is_name else ""
    except (tokenize.TokenError, SyntaxError, UnicodeError):  # Python 3.12 can't decode some lines
        pass
    rest = code[place:]
    quote = _QUOTE.search(rest)
    shown += [rest] if quote is None else [rest[: quote.start()], HIDDEN]
    return "\n".join(line.rstrip() for line in "".join(shown).split("\n"))


def redact_urls(text: str) -> str:
    """Return a message without the user names and passwords in its URLs."""
    return _USER_INFO.sub(r"\1…@", text)
