"""The blocks that the page is built of: HTML in a string, its style inside, nothing to load."""

from collections.abc import Sequence
from html import escape
from typing import Any

Numbers = dict[str, Any]
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
CSS = f"""
:root {{ --ink: #222; --muted: #6b6b6b; --line: #e3e3e3; --blue: #0072B2; --pale: #f4f8fb }}
* {{ box-sizing: border-box }}
body {{ margin: 0; color: var(--ink); background: #fff; font: 16px/1.5 {FONT} }}
main {{ max-width: 940px; margin: 0 auto; padding: 28px 20px 60px }}
h1 {{ font-size: 15px; font-weight: 600; color: var(--muted); margin: 0 0 14px }}
h2 {{ font-size: 20px; margin: 44px 0 8px; padding-top: 14px; border-top: 1px solid var(--line) }}
p {{ margin: 8px 0; max-width: 76ch }}
.answer p {{ font-size: 19px; line-height: 1.42; margin: 0 0 10px; max-width: 72ch }}
.answer p:first-child {{ font-size: 25px; font-weight: 650; line-height: 1.3; max-width: 58ch }}
figure {{ margin: 18px 0 6px }}
figcaption, .note {{ color: var(--muted); font-size: 14px }}
.scroll {{ overflow-x: auto }}
svg {{ width: 100%; min-width: 560px; height: auto; display: block; font: 12px {FONT} }}
table {{ border-collapse: collapse; font-size: 14px; margin: 10px 0; font-variant-numeric: tabular-nums }}
th, td {{ padding: 5px 16px 5px 0; text-align: right; border-bottom: 1px solid var(--line) }}
td {{ white-space: nowrap }}
th {{ color: var(--muted); font-weight: 600; vertical-align: bottom; max-width: 130px }}
th:first-child, td:first-child, .text {{ text-align: left }}
td:first-child {{ padding-left: 6px }}
td.wide {{ white-space: normal; min-width: 200px }}
tr.ours td {{ background: var(--pale); font-weight: 600 }}
.bar {{ display: inline-block; height: 9px; background: var(--blue); vertical-align: middle }}
code {{ display: block; white-space: pre-wrap; overflow-wrap: anywhere; background: #f6f6f6; margin: 10px 0;
  border-left: 3px solid var(--line); padding: 8px 10px; font-size: 12.5px }}
ul {{ padding-left: 20px; max-width: 84ch }}
li {{ margin: 4px 0 }}
summary {{ cursor: pointer; color: var(--blue); font-size: 14px; margin: 8px 0 }}
@media (max-width: 600px) {{
  main {{ padding: 18px 14px 40px }}
  .answer p {{ font-size: 17px }}
  .answer p:first-child {{ font-size: 21px }}
}}
@media print {{ h2 {{ break-after: avoid }} figure, table {{ break-inside: avoid }} }}
"""


def document(title: str, body: str) -> str:
    """A whole page."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head><body><main>{body}</main></body></html>\n"
    )


def section(title: str, *parts: str) -> str:
    """A heading and what stands under it; nothing where that is nothing."""
    return f"<h2>{escape(title)}</h2>{''.join(parts)}" if any(parts) else ""


def para(text: str) -> str:
    """A paragraph; nothing of no text."""
    return f"<p>{words(text)}</p>" if text else ""


def words(text: str) -> str:
    """Text as HTML; a figure stays on the line of its unit."""
    return escape(text).replace(" %", "&nbsp;%").replace(" USD", "&nbsp;USD")


def listed(lines: Sequence[str]) -> str:
    """A list of lines."""
    return f"<ul>{''.join(f'<li>{words(line)}</li>' for line in lines)}</ul>" if lines else ""


def folded(summary: str, body: str) -> str:
    """What is shown when somebody asks for it."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>" if body else ""


def figure(svg: str, caption: str) -> str:
    """A drawing with what it is of; nothing without one."""
    if not svg:
        return ""
    return f'<figure><div class="scroll">{svg}</div><figcaption>{escape(caption)}</figcaption></figure>'


def command(numbers: Numbers, key: str) -> str:
    """What makes the figures of a section again."""
    text = numbers["commands"].get(key)
    return "" if text is None else f"<code>{escape(text)}</code>"


def text_cell(text: str, is_wide: bool = False) -> str:
    """A cell of words."""
    return f'<td class="text{" wide" if is_wide else ""}">{escape(text)}</td>'


def bar_cell(share: float) -> str:
    """A cell with a bar of so much of the longest."""
    return f'<td class="text"><span class="bar" style="width:{max(1.0, 170 * share):.0f}px"></span></td>'


def cell(text: str) -> str:
    """A cell of figures."""
    return f"<td>{escape(text)}</td>"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], ours: int | None = None) -> str:
    """A table of such cells; the row that is `ours` is marked."""
    is_text = [one.startswith('<td class="text') for one in rows[0]] if rows else [False] * len(heads)
    head = "".join(
        f'<th class="text">{escape(name)}</th>' if left else f"<th>{escape(name)}</th>"
        for name, left in zip(heads, is_text, strict=True)
    )
    lines = [f"<tr{' class=ours' if n == ours else ''}>{''.join(row)}</tr>" for n, row in enumerate(rows)]
    body = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f'<div class="scroll">{body}</div>'


def number(value: float | None, digits: int = 0) -> str:
    """A figure as a person reads it; a dash where it is not known."""
    return "–" if value is None else f"{value:,.{digits}f}"
