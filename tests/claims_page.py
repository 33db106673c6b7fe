"""data/docs/reference/claims.md, what five papers claim and what was found here.

Written from data/claims.toml by `python tests/claims_page.py`.
"""

import os
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetcast.assets.lake.sql_docs import escape_cell

ROOT = Path(__file__).resolve().parent.parent
CLAIMS_FILE = ROOT / "data" / "claims.toml"
CLAIMS_PAGE = ROOT / "data" / "docs" / "reference" / "claims.md"
CLAIMING_PAPERS = ("SageServe", "multi-tier Llumnix", "Cauchy", "Cascadia", "BoUTE")
NOT_TESTED = "not tested"
CLAIM_VERDICTS = ("holds", "holds in part", "does not hold here", NOT_TESTED)
CLAIMS_INTRODUCTION = """# Which claims of the five papers hold here?

Written from `data/claims.toml` by `python tests/claims_page.py`. To change a row, change that
file. A test fails where a figure of this page is not on the page that it links to.

One row is one reading of one claim. Where a text can be read in two ways, the reading that is best for its
authors comes first. All figures of fleetcast come from replays with modelled latencies, not from GPUs. The
papers' traces are not public, and their settings are published in part. So a verdict is about the setting
here. It does not say that a paper measured something wrong.

| verdict | meaning |
| --- | --- |
| holds | fleetcast finds the same direction, and about as much or more |
| holds in part | the same direction, but clearly less, for another reason, or only in a part of the cases |
| does not hold here | the other direction, or no effect |
| not tested | no command of this project measures it yet |

What the figures do not show: [SageServe](../../studies/README.md),
[multi-tier Llumnix](../../studies/levels.md#what-the-figures-do-not-say),
[Cauchy](../../studies/gpus.md#limits-of-this-study),
[Cascadia and BoUTE](../../studies/quality.md#what-the-figures-do-not-say).
"""


@dataclass(frozen=True)
class PaperClaim:
    """One claim of a paper in one reading, and the figure of fleetcast that answers it."""

    paper: str  # one of CLAIMING_PAPERS
    claim: str
    place: str  # section, figure or table of the paper
    paper_value: str
    command: str  # that measures the figure; empty where nothing does
    page: str  # of the figure: a path from the root, with the heading's anchor
    figure: str  # exactly as it is on that page
    reading: str  # of a torn clause, or the setting of the figure
    verdict: str  # one of CLAIM_VERDICTS
    line: str = ""  # text that is on the same line of the page; for figures that are there more than once


def load_claims() -> list[PaperClaim]:
    """Return the claims of the file; TypeError for a key that is missing or unknown."""
    return [PaperClaim(**claim) for claim in tomllib.loads(CLAIMS_FILE.read_text(encoding="utf-8"))["claim"]]


def render_claims(claims: Sequence[PaperClaim]) -> str:
    """Return the page as Markdown: a count of verdicts by paper, then a table for each paper."""
    parts = [CLAIMS_INTRODUCTION, "## By paper", "", _row("paper", "rows", *CLAIM_VERDICTS), _rule(6)]
    for paper in CLAIMING_PAPERS:
        counts = Counter(claim.verdict for claim in claims if claim.paper == paper)
        anchor = paper.lower().replace(" ", "-")
        numbers = [str(counts[verdict]) for verdict in CLAIM_VERDICTS]
        parts.append(_row(f"[{paper}](#{anchor})", str(counts.total()), *numbers))
    for paper in CLAIMING_PAPERS:
        parts += ["", f"## {paper}", ""]
        parts += [_row("claim", "where", "the paper", "fleetcast", "reading", "command", "verdict"), _rule(7)]
        parts += [_claim_row(claim) for claim in claims if claim.paper == paper]
    return "\n".join([*parts, ""])


def _claim_row(claim: PaperClaim) -> str:
    """Return the row of a claim; its figure links to the page where it is measured."""
    link = os.path.relpath(ROOT / claim.page, CLAIMS_PAGE.parent)
    figure = f"[{escape_cell(claim.figure)}]({link})" if claim.figure else "–"
    command = f"`{claim.command}`" if claim.command else "–"
    texts = [escape_cell(text) for text in (claim.claim, claim.place, claim.paper_value)]
    return _row(*texts, figure, escape_cell(claim.reading), command, claim.verdict)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(columns: int) -> str:
    return _row(*["---"] * columns)


if __name__ == "__main__":
    CLAIMS_PAGE.write_text(render_claims(load_claims()), encoding="utf-8")
