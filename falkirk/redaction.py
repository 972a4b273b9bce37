"""Redaction: a line of the user's code as an error may show it, without the secrets that may stand in it.

Errors, dead letters and the status quote the user's lines, and others read those. Which literal is a secret can't be
known, so the rule goes the other way round: names are shown, and a literal is hidden unless it is an argument of a call
that takes no secrets, on a line that speaks of none. This module imports nothing of Falkirk: it travels to Spark's
workers.
"""

import io
import keyword
import re
import tokenize

#: What stands for a literal that is not shown.
HIDDEN = '"…"'
#: Calls that take names, columns, durations and schemas, and never a secret.
_HARMLESS = frozenset(
    re.findall(
        r"\w+",
        """source sink stream batch iterate add_processor Kafka Files Console Lazy Eager Ephemeral Snapshots LogSends
        Acknowledged FullHistory Latest select where filter withColumn withColumnRenamed drop dropDuplicates groupBy agg
        join alias cast col expr latest explode count sum min max avg stateful sessions counted map_rows fixpoint
        distinct""",
    )
)
#: A line with such a word, in a name or in a text, may hold a secret in any of its literals.
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
    """Return a line of Python without the literals that may be secrets, and without its comment.

    A text that does not end on the line is hidden from where it begins.
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
                break  # a text without an end
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
    except (tokenize.TokenError, SyntaxError):
        pass
    rest = line[column:]
    quote = _QUOTE.search(rest)
    return "".join([*shown, rest]).rstrip() if quote is None else "".join([*shown, rest[: quote.start()], HIDDEN])


def redact_urls(text: str) -> str:
    """Return a message without the user and the password of the URLs in it."""
    return _USER_INFO.sub(r"\1…@", text)
