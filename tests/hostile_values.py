"""Hostile values, and what is done to the bytes of a file."""

import gzip
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

TEXTS = (
    *("", " ", "NaN", "inf", "-inf", "-1", "0", "1e400", "-1e308", "0x10", "١٢٣", "1_000", "1,000", "True"),
    *("9223372036854775807", "-9223372036854775809", "9" * 400, "9" * 5000, "0.1" + "0" * 3000 + "1"),
    *("null", "undefined", "[]", "{}", "[[[[", '{"a":', "\\N", '"', "'", "'); drop table requests; --"),
    *("\x1b[2J\x1b]0;title\x07", "[red]x[/bold]", ":smile:", "\u202egnp.exe", "a\x00b", "a\nb", "\ud7ff"),
    *("../../../etc/passwd", "/dev/zero", "~nouser/x", "$(id)", "=cmd|'/c calc'!A1", "{0.__class__}", "%s%n"),
    *("x" * 300, "x" * 100_000, "é" * 255, "0001-01-01", "9999-12-31T23:59:59Z", "2025-02-30", "99999-01-01"),
    *("1677-09-21T00:12:43Z", "2025-01-01T00:00:00+99:99", "2025-13-01", "-9999999999999999", "1e18"),
)  # fmt: skip
ARGUMENTS = tuple(
    text for text in TEXTS if "\x00" not in text and len(text) < 10_000
)  # as the system passes them
ALMOST = (  # values of options that look like good ones
    *(
        "h200-141gb=" + "9" * 4999,
        "h200-141gb=1e400",
        "h200-141gb=-1",
        "h200-141gb=٣",
        "h200-141gb=",
        "=1",
        "a=b=c",
    ),
    *("1e300 x llama2-70b@2xh200-141gb", "llama2-70b@999999999xh200-141gb", "llama2-70b@0xh200-141gb"),
    *(
        "999999999 x llama2-70b@2xh200-141gb",
        "-1 x llama2-70b@2xh200-141gb",
        "llama2-70b@office",
        "llama2-70b@",
    ),
    *(
        "1000000000",
        "2147483648",
        "1e9",
        "1e-9",
        "1e-308",
        "4096",
        "0.5,nan",
        "0.1,0.1,0.1",
        ",",
        ",,,,",
        "1:2:3",
    ),
    *(
        "llama2-70b,llama2-70b",
        "llama2-70b," * 1000,
        "all",
        "none",
        "arrived_at=",
        "arrived_at=TIMESTAMP,",
        "*",
    ),
)
JSON_VALUES: tuple[Any, ...] = (
    *TEXTS,
    *(None, True, False, -1, 0, 1e308, -1e308, float("nan"), float("inf"), 2**63, -(2**64), 10**300),
    *([], {}, [[]], [None], [-1], {"": {}}, {"a": [1, {"b": None}]}, list(range(1000))),
)
TOML_VALUES = (
    *("nan", "inf", "-inf", "-1", "0", "0.0", "-0.0", "1", "1e308", "1e-308", "9223372036854775807", "1e18"),
    *(
        "9223372036854775808",
        "true",
        "false",
        '""',
        '" "',
        '"[red]x"',
        '"\\u001b[2J"',
        '"../../x"',
        "[]",
        "{}",
    ),
    *("[[]]", "[{}]", "[1, 'a']", "1979-05-27", "07:32:00", "2099-12-31T23:59:59Z", f'"{"x" * 4000}"'),
    *("'nan'", "'''\na'''", "{a = 1}", "[nan]", "['a', 'a']", "[0, 0]", "[1e308, 1e308]", "'1'", "[-1, 1]"),
)


def spoil_bytes(content: bytes, draw: random.Random) -> Iterator[tuple[str, bytes]]:
    """A file cut, repacked, recoded and with bytes changed, each with what was done."""
    half = len(content) // 2
    yield "cut", content[: draw.randrange(1, len(content))]
    yield "begins late", content[half:]
    yield "NUL bytes", content[:half] + bytes(64) + content[half:]
    yield "random bytes", content[:half] + draw.randbytes(200) + content[half:]
    yield "bits flipped", flip_bits(content, draw)
    yield "gzip", gzip.compress(content)
    yield "gzip cut", gzip.compress(content * 50)[:-9]
    yield "gzip and more", gzip.compress(content) + b"more"
    yield "gzip twice", gzip.compress(gzip.compress(content))
    yield "zstd head", b"\x28\xb5\x2f\xfd" + content[4:]
    yield "UTF-8 mark", b"\xef\xbb\xbf" + content
    yield "UTF-16", content.decode("utf-8", "replace").encode("utf-16")
    yield "UTF-32", content.decode("utf-8", "replace").encode("utf-32")
    yield "CR only", content.replace(b"\n", b"\r")
    yield "one line", content.replace(b"\n", b" ")
    yield "a row of 17 MiB", content + b"5" * (17 << 20)
    yield "twice", content * 2
    yield "quotes", content.replace(b",", b'",')
    yield "no end of quotes", content + b'"' * 999


def flip_bits(content: bytes, draw: random.Random, share: float = 0.01) -> bytes:
    """Flip one bit in some of the bytes."""
    spoilt = bytearray(content)
    for _ in range(max(1, int(share * len(spoilt)))):
        spoilt[draw.randrange(len(spoilt))] ^= 1 << draw.randrange(8)
    return bytes(spoilt)


def replace_leaf(document: Any, draw: random.Random, value: Any) -> tuple[str, Any]:
    """A copy of a JSON document with one of its values replaced, wherever it is; and which."""
    if isinstance(document, dict) and document:
        key = draw.choice(list(document))
        if draw.random() < 0.3 or not isinstance(document[key], (dict, list)):
            return str(key), {**document, key: value}
        where, inner = replace_leaf(document[key], draw, value)
        return f"{key}.{where}", {**document, key: inner}
    if isinstance(document, list) and document:
        at = draw.randrange(len(document))
        where, inner = replace_leaf(document[at], draw, value)
        return f"{at}.{where}", [*document[:at], inner, *document[at + 1 :]]
    return "", value


def spoil_toml(text: str, draw: random.Random) -> tuple[str, bytes]:
    """A TOML file with one line or its bytes changed, and what was done."""
    lines = text.splitlines()
    keyed = [n for n, line in enumerate(lines) if re.match(r'[\w."-]+ *= *\S', line)]
    at = draw.choice(keyed or range(len(lines)))
    key = lines[at].partition("=")[0].strip()
    value = draw.choice(TOML_VALUES)
    changes: list[tuple[str, Callable[[], bytes]]] = [
        (f"{key} twice", lambda: "\n".join([*lines[: at + 1], *lines[at:]]).encode()),
        (f"no {key}", lambda: "\n".join(lines[:at] + lines[at + 1 :]).encode()),
        ("an unknown key", lambda: "\n".join([*lines[:at], f"x{key} = 1", *lines[at:]]).encode()),
        ("UTF-16", lambda: text.encode("utf-16")),
        ("cut", lambda: text.encode()[: draw.randrange(len(text))]),
        ("NUL bytes", lambda: text.replace(" = ", " = \x00", 1).encode()),
        ("bits flipped", lambda: flip_bits(text.encode(), draw, 0.001)),
    ]
    if draw.random() < 0.75:
        return f"{key} = {value}"[:60], "\n".join(
            [*lines[:at], f"{key} = {value}", *lines[at + 1 :]]
        ).encode()
    what, change = draw.choice(changes)
    return what, change()
