"""Buckets of requests alike in input and output, and how a bucket's requests are dealt out to options.

What a request will answer nobody knows when it comes. It is taken for the mean of its app on the day before;
the bucket of a request is where its input and that mean lie among the edges. Melange (section 5) takes the
true lengths.

A plan says which share of a bucket an option serves (models/plan/share_program.py, melange.py). Requests
are dealt
out by smooth weighted round robin, bucket by bucket: every option earns its share, the richest one gets the
request and pays what all have earned; ties to the first. So an option's part of the first n requests of a
bucket is off by less than one request, of many options by hardly more (1.13 of ten is the most that was
seen). Who is dealt where hangs on the requests alone, not on the fleet: it is settled before a replay, in
which each option takes what was dealt to it.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.problem import PlanError

OutputTokenCounts = npt.NDArray[np.int32]


@dataclass(frozen=True)
class BucketEdges:
    """Where buckets part, in tokens, ascending: a request at an edge lies above it. PlanError for others."""

    input_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]

    def __post_init__(self) -> None:
        for name, given in (("input", self.input_tokens), ("output", self.output_tokens)):
            if any(edge <= 0 for edge in given) or any(np.diff(given) <= 0):
                raise PlanError(
                    f"Edges of buckets by {name}: got {', '.join(map(str, given))}, needed tokens above 0 "
                    "that ascend. Mend them."
                )

    @property
    def count(self) -> int:
        """How many buckets there are."""
        return (len(self.input_tokens) + 1) * (len(self.output_tokens) + 1)

    def bucket(self, input_tokens: npt.ArrayLike, expected_tokens: npt.ArrayLike) -> Ints:
        """The bucket of each request, shape (n,), by its input and what its app answered yesterday."""
        row = np.searchsorted(self.input_tokens, np.asarray(input_tokens), side="right")
        column = np.searchsorted(self.output_tokens, np.asarray(expected_tokens), side="right")
        return np.asarray(row * (len(self.output_tokens) + 1) + column, dtype=np.int64)

    def title(self, bucket: int) -> str:
        """Like "up to 511 in, 256 out and more"."""
        row, column = divmod(bucket, len(self.output_tokens) + 1)
        return f"{_between(self.input_tokens, row)} in, {_between(self.output_tokens, column)} out"


def _between(edges: tuple[int, ...], n: int) -> str:
    """The tokens between two edges, in words."""
    if not edges:
        return "any"
    if n == 0:
        return f"up to {edges[0] - 1}"
    return f"{edges[n - 1]} and more" if n == len(edges) else f"{edges[n - 1]} to {edges[n] - 1}"


def expected_output_tokens(app: Ints, yesterday_app: Ints, yesterday_tokens: OutputTokenCounts) -> Floats:
    """What each request is taken to answer, shape (n,): the mean of its app yesterday.

    An app that did not come yesterday is taken for the mean of all. PlanError where nothing came at all.
    """
    if yesterday_tokens.size == 0:
        raise PlanError("No request of the day before to tell by what apps answer. Land a day more.")
    size = int(max(app.max(initial=0), yesterday_app.max())) + 1
    count = np.bincount(yesterday_app, minlength=size)
    total = np.bincount(yesterday_app, yesterday_tokens, minlength=size)
    return np.where(count > 0, total / np.maximum(count, 1), yesterday_tokens.mean())[app]


def distribute_requests(bucket: Ints, shares: Floats) -> Ints:
    """The option that each request is dealt to, shape (n,); `shares` (b, n) of a bucket need not add up to 1.

    PlanError for a bucket that has requests and no option.
    """
    option = np.zeros(bucket.size, np.int64)
    for b in np.unique(bucket):
        own = np.flatnonzero(bucket == b)
        given = np.flatnonzero(shares[b] > 0)
        if not given.size:
            raise PlanError(f"Bucket {b + 1} has requests, and no option has a share of it. Plan for it too.")
        earned = shares[b, given]
        credit = np.zeros(given.size)
        for request in own:
            credit += earned
            richest = int(credit.argmax())
            option[request] = given[richest]
            credit[richest] -= earned.sum()
    return option
