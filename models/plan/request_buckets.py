"""Buckets of requests with similar input and output lengths, and their distribution over options.

The output length of a request is unknown when it arrives. Its estimate is the mean of its app on the day
before. The bucket of a request follows from its input and this estimate. Melange (section 5) uses the true
lengths.

A plan gives the share of each bucket that an option serves (models/plan/share_program.py, melange.py).
Requests are distributed by smooth weighted round robin, bucket by bucket: every option earns its share as
credit, the option with the most credit gets the request and pays the total that all options earned; ties go
to the first. So of the first n requests of a bucket an option gets less than one more than its share: of k
options the one with the most credit has at least a k-th of what it pays. It may lack slightly more than one
(at most 1.13 requests were observed, with ten options; with four in one of 10,000 mixes).
The distribution depends on the requests alone, not on the fleet. It is computed before a replay, in which
each option serves its requests.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.plan.problem import PlanError

OutputTokenCounts = npt.NDArray[np.int32]


@dataclass(frozen=True)
class BucketEdges:
    """Edges between buckets in tokens, ascending; a request at an edge is in the bucket above.

    PlanError for edges that are not positive or do not ascend.
    """

    input_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]

    def __post_init__(self) -> None:
        for name, edges in (("input", self.input_tokens), ("output", self.output_tokens)):
            if any(edge <= 0 for edge in edges) or any(np.diff(edges) <= 0):
                raise PlanError(
                    f"Edges of buckets by {name}: got {', '.join(map(str, edges))}, needed tokens above 0 "
                    "that ascend. Correct them."
                )

    @property
    def count(self) -> int:
        """Number of buckets."""
        return (len(self.input_tokens) + 1) * (len(self.output_tokens) + 1)

    def bucket(self, input_tokens: npt.ArrayLike, expected_tokens: npt.ArrayLike) -> Ints:
        """Return the bucket of each request by its input and expected output tokens, all of shape (n,)."""
        row = np.searchsorted(self.input_tokens, np.asarray(input_tokens), side="right")
        column = np.searchsorted(self.output_tokens, np.asarray(expected_tokens), side="right")
        return np.asarray(row * (len(self.output_tokens) + 1) + column, dtype=np.int64)

    def title(self, bucket: int) -> str:
        """Return the bucket's title, like "up to 511 in, 256 and more out"."""
        row, column = divmod(bucket, len(self.output_tokens) + 1)
        return (
            f"{_describe_range(self.input_tokens, row)} in, {_describe_range(self.output_tokens, column)} out"
        )


def _describe_range(edges: tuple[int, ...], n: int) -> str:
    """Describe the n-th range of tokens between the edges."""
    if not edges:
        return "any"
    if n == 0:
        return f"up to {edges[0] - 1}"
    return f"{edges[n - 1]} and more" if n == len(edges) else f"{edges[n - 1]} to {edges[n] - 1}"


def expected_output_tokens(app: Ints, yesterday_app: Ints, yesterday_tokens: OutputTokenCounts) -> Floats:
    """Return the expected output tokens of each request, shape (n,): the mean of its app yesterday.

    An app without requests yesterday gets the mean of all requests. PlanError without any request yesterday.

    Parameters
    ----------
    app : shape (n,), the app of each request
    yesterday_app, yesterday_tokens : shape (m,), app and output tokens of each request of the day before
    """
    if yesterday_tokens.size == 0:
        raise PlanError("No request of the day before to estimate output tokens from. Land one more day.")
    size = int(max(app.max(initial=0), yesterday_app.max())) + 1
    count = np.bincount(yesterday_app, minlength=size)
    total = np.bincount(yesterday_app, yesterday_tokens, minlength=size)
    return np.where(count > 0, total / np.maximum(count, 1), yesterday_tokens.mean())[app]


def distribute_requests(bucket: Ints, shares: Floats) -> Ints:
    """Return the option of each request, shape (requests,), by smooth weighted round robin.

    PlanError for a bucket that has requests and no option.

    Parameters
    ----------
    bucket : shape (requests,), in the order of arrival
    shares : shape (buckets, options); a bucket's shares need not add up to 1
    """
    option = np.zeros(bucket.size, np.int64)
    for b in np.unique(bucket):
        options = np.flatnonzero(shares[b] > 0)
        if not options.size:
            raise PlanError(f"Bucket {b + 1} has requests, and no option has a share of it. Plan for it too.")
        earned = shares[b, options]
        credit = np.zeros(options.size)
        for request in np.flatnonzero(bucket == b):
            credit += earned
            richest = int(credit.argmax())
            option[request] = options[richest]
            credit[richest] -= earned.sum()
    return option
