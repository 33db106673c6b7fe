"""Buckets of requests, and how they are distributed to options."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fleetcast.models.plan.problem import PlanError
from fleetcast.models.plan.request_buckets import BucketEdges, distribute_requests, expected_output_tokens

EDGES = BucketEdges((512, 2048), (256,))


def test_a_bucket_depends_on_input_and_the_app_s_past_answers() -> None:
    """Six buckets; its own answer does not count; a new app takes the mean of all apps of yesterday."""
    expected = expected_output_tokens(
        np.array([0, 1, 2, 0]), np.array([0, 0, 1]), np.array([100, 300, 800], np.int32)
    )
    np.testing.assert_allclose(expected, [200, 800, 400, 200])
    found = EDGES.bucket([511, 512, 4000, 2047], expected)
    assert found.tolist() == [0, 3, 5, 2]
    titles = [
        "up to 511 in, up to 255 out",
        "512 to 2047 in, 256 and more out",
        "2048 and more in, 256 and more out",
    ]
    assert [EDGES.title(b) for b in (0, 3, 5)] == titles
    assert BucketEdges((), ()).bucket([1, 9], [3, 4]).tolist() == [0, 0]
    assert BucketEdges((), ()).title(0) == "any in, any out"


@given(st.integers(1, 300), st.integers(0, 10**6))
@example(279, 10_500)  # an option lacks 1.03 requests
def test_each_option_stays_near_its_share(requests, seed) -> None:
    """After any number of a bucket's requests; so equal shares take turns."""
    rng = np.random.default_rng(seed)
    bucket = rng.integers(0, 3, requests)
    shares = rng.dirichlet([0.5] * 4, 3) * rng.uniform(0.1, 1.0, (3, 1))  # some of a bucket may be unserved
    shares[shares < 1e-3] = 0.0
    option = distribute_requests(bucket, shares)
    for b in np.unique(bucket):
        got = (option[bucket == b, None] == np.arange(4)).cumsum(axis=0)
        due = np.arange(1, len(got) + 1)[:, None] * shares[b] / shares[b].sum()
        assert (got - due <= 1 - 1 / np.count_nonzero(shares[b]) + 1e-9).all()
        assert (due - got < 1.2).all()
        assert not got[-1][shares[b] == 0].any()
    assert distribute_requests(np.zeros(6, int), np.ones((1, 3))).tolist() == [0, 1, 2, 0, 1, 2]


def test_bad_buckets_are_refused_in_one_line() -> None:
    for given_, message in (((0, 5), "by input: got 0, 5"), ((9, 9), "by input: got 9, 9")):
        with pytest.raises(PlanError, match=message):
            BucketEdges(given_, ())
    with pytest.raises(PlanError, match="Bucket 2 has requests, and no option has a share"):
        distribute_requests(np.array([1]), np.array([[1.0], [0.0]]))
    with pytest.raises(PlanError, match="No request of the day before"):
        expected_output_tokens(np.array([0]), np.array([], int), np.array([], np.int32))
