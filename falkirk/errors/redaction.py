"""Redaction: removes possible secrets from a line of the user's code, so that an error may show it.

Errors, dead letters and the status quote the user's lines, and other people read them. Falkirk can't know which literal
is a secret. So it shows names, but hides every literal with one exception: an argument of a call that takes no secrets,
on a line without words such as "password". This module imports nothing else of Falkirk, because Spark's workers receive
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
        stateful sessions counted map_rows fixpoint distinct lookup latest_value""",
    )
)
#: If a line contains such a word, in a name or a text, any of its literals may be a secret.
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


def redact(line: str) -> str:
    """Return a line of Python without its comment and without literals that may be secrets.

    A text that does not end on the line is hidden from its start.
    """
    speaks = _SPEAKS_OF_SECRETS.search(line) is not None
    shown: list[str] = []
    calls: list[str] = []
    column = 0
    name = ""
    try:
        for token in tokenize.generate_tokens(io.StringIO(line).readline):
            begin, end = token.start[1], token.end[1]
            if token.type == tokenize.ERRORTOKEN and _QUOTE.match(token.string):
                break  # an unterminated text
            if token.type in (tokenize.NEWLINE, tokenize.NL, tokenize.ENDMARKER, tokenize.COMMENT):
                return "".join([*shown, line[column:begin]]).rstrip()
            if token.start[0] > 1 or token.end[0] > 1:
                break
            if token.type in _STRINGS:
                is_safe = not speaks and bool(calls) and calls[-1] in _HARMLESS
            else:
                is_safe = token.type != tokenize.NUMBER or not speaks
            shown += [line[column:begin], token.string if is_safe else HIDDEN]
            column = end
            if token.string in "([{" and token.string:
                calls.append(name if token.string == "(" else (calls[-1] if calls else ""))
            elif token.string in ")]}" and token.string and calls:
                calls.pop()
            is_name = token.type == tokenize.NAME and not keyword.iskeyword(token.string)
            name = token.string if is_name else ""
    except (tokenize.TokenError, SyntaxError, UnicodeError):  # Python 3.12 can't decode some lines
        pass
    rest = line[column:]
    quote = _QUOTE.search(rest)
    return "".join([*shown, rest]).rstrip() if quote is None else "".join([*shown, rest[: quote.start()], HIDDEN])


def redact_urls(text: str) -> str:
    """Return a message without the user names and passwords in its URLs."""
    return _USER_INFO.sub(r"\1…@", text)
