"""The cheapest engine point: fewest instances by bisection, races with an incumbent, successive halving.

More instances hardly ever lower the attainment, so the fewest that attain every tier follow by bisection;
in a short burst they may, and then the bisection may return a few too many. A race
goes through points in the order of the cost of steady work. A point whose lower bound is above the best cost
so far, times a margin, is dropped without a replay; another is first replayed with as many instances as that
cost pays, and dropped where these do not attain. Halving repeats this on windows that grow, with margins that
shrink:

    kinds      every kind of point with default settings, on a short window
    settings   all settings of the best kinds, on the same window
    middle     the best points, on a longer window
    whole      the finalists, on the whole busiest hours
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from fleetcast.models.configure.cost_bound import TokenWork, shape_busy_s
from fleetcast.models.configure.engine_points import EngineMarket, EnginePoint, EngineShape, list_settings
from fleetcast.models.configure.fleet_trials import FleetScore, TrafficWindow, score_fleet
from fleetcast.models.trials.target_search import find_least_sufficient

# Above the best cost, of points that stay in a race.
KIND_MARGIN, SETTING_MARGIN, LAST_MARGIN = 0.4, 0.15, 0.5
BEST_KINDS, MIDDLE_POINTS, FINALISTS, OTHERS, FRONT_KINDS = 6, 24, 4, 6, 6
COARSE_PARTS = 16  # short races find the fewest instances to one part in so many
HOPELESS = 12  # times the steady work: with so many instances a point that does not attain never will
NO_LIMIT = float("inf")


class FleetTrials:
    """Replays and bounds of points on the same windows; each fleet is replayed once."""

    def __init__(self, market: EngineMarket, windows: Sequence[TrafficWindow]) -> None:
        """Set up trials on these windows."""
        self.market, self.windows = market, windows
        self.scores = dict[tuple[EnginePoint, tuple[int, ...]], FleetScore]()
        self._busy_s = dict[tuple[object, ...], float]()
        self._works_of = dict[str, tuple[list[TokenWork], list[TokenWork]]]()
        self.tiers = next(iter(market.catalogues.values())).tiers

    def score(self, point: EnginePoint, counts: Sequence[int]) -> FleetScore:
        """Return the score of a fleet, from memory if it was replayed before."""
        key = point, tuple(counts)
        if key not in self.scores:
            self.scores[key] = score_fleet(self.market, point, counts, self.windows)
        return self.scores[key]

    def steady_instances(self, point: EnginePoint) -> tuple[float, ...]:
        """Return the instances of each shape that are always busy, as fractions: the most of the windows."""
        return self._most_busy(point, self._works(point.settings.prefix)[0])

    def least_instances(self, point: EnginePoint) -> tuple[int, ...]:
        """Return a lower bound of the instances of each shape with which every tier is attained."""
        busy = self._most_busy(point, self._works(point.settings.prefix)[1])
        return tuple(map(whole_instances, busy))

    def _works(self, prefix: str) -> tuple[list[TokenWork], list[TokenWork]]:
        """Return the steady work of each window, and the work that is due by each moment of each window."""
        if prefix not in self._works_of:
            due = [work for window in self.windows for work in window.due_works(prefix, self.tiers)]
            self._works_of[prefix] = [window.steady_work(prefix) for window in self.windows], due
        return self._works_of[prefix]

    def _most_busy(self, point: EnginePoint, works: Sequence[TokenWork]) -> tuple[float, ...]:
        parts = [[work] for work in works]
        if point.decode is not None:
            parts = [
                [work._replace(decode_tokens=0.0, cached_tokens=0.0), work._replace(prompt_tokens=0.0)]
                for work in works
            ]
        return tuple(
            max(self._busy(point, shape, part[n]) / part[n].busy_s for part in parts)
            for n, shape in enumerate(point.shapes)
        )

    def _busy(self, point: EnginePoint, shape: EngineShape, work: TokenWork) -> float:
        key = point.variant, shape, point.settings._replace(routing=""), work
        if key not in self._busy_s:
            self._busy_s[key] = shape_busy_s(self.market, point, shape, work)
        return self._busy_s[key]

    def bound_usd(self, point: EnginePoint) -> float:
        """Return a lower bound of the USD per hour of a fleet that attains every tier."""
        return point.usd_per_hour(self.market.catalogue_of(point), self.least_instances(point))

    def steady_usd(self, point: EnginePoint) -> float:
        """Return the USD per hour of engines that are always busy."""
        return point.usd_per_hour(self.market.catalogue_of(point), self.steady_instances(point))


def whole_instances(share: float) -> int:
    """Return the least whole number of instances, at least one."""
    return max(1, -int(-share // 1))


class CountLine(NamedTuple):
    """Fleets of a point by their total number of instances, with both phases in proportion to their work."""

    low: tuple[int, ...]  # the bound
    steady: int  # instances for steady work, an estimate
    share: float  # of the instances that prefill; 0 where the phases are together

    def counts(self, total: int) -> tuple[int, ...]:
        """Return the instances of each shape."""
        if len(self.low) == 1:
            return (total,)
        prefill = min(max(self.low[0], round(total * self.share)), total - 1)
        return prefill, max(1, total - prefill)


def count_line(trials: FleetTrials, point: EnginePoint) -> CountLine:
    """Return the fleets of a point, from its bound on."""
    busy, low = trials.steady_instances(point), trials.least_instances(point)
    steady = max(sum(low), sum(map(whole_instances, busy)))
    return CountLine(low, steady, busy[0] / sum(busy) if len(busy) > 1 else 0.0)


def fewest_attaining(
    trials: FleetTrials,
    point: EnginePoint,
    most_usd: float = NO_LIMIT,
    guess: int | None = None,
    parts: int | None = None,
) -> FleetScore | None:
    """Return the score of the fewest instances that attain every tier; None above `most_usd` per hour.

    With `parts` they are the fewest to one part in so many. Prefill and decode then keep their proportion, if
    there are more instances than parts.
    """
    line, catalogue = count_line(trials, point), trials.market.catalogue_of(point)
    low, high = sum(line.low), HOPELESS * line.steady
    while high >= low and point.usd_per_hour(catalogue, line.counts(high)) > most_usd:
        high -= 1
    if high < low:
        return None

    def attains(total: int) -> bool:
        return trials.score(point, line.counts(total)).is_attained

    if most_usd < NO_LIMIT or guess is None:
        if not attains(high):
            return None
        guess = guess or line.steady
    found = find_least_sufficient(attains, guess, high, low, parts)
    if found is None:
        return None
    if parts is not None and found > parts:
        return trials.score(point, line.counts(found))
    return trim_phases(trials, point, line.counts(found), line.low)


def trim_phases(
    trials: FleetTrials, point: EnginePoint, counts: tuple[int, ...], low: tuple[int, ...]
) -> FleetScore:
    """Return the score of a fleet with as few instances of each phase as the other allows."""
    for phase in range(len(counts) - 1, -1, -1) if len(counts) > 1 else ():

        def attains(number: int, phase: int = phase, counts: tuple[int, ...] = counts) -> bool:
            changed = (*counts[:phase], number, *counts[phase + 1 :])
            return trials.score(point, changed).is_attained

        most = counts[phase]
        found = find_least_sufficient(attains, most, most, min(low[phase], most), resolution=None)
        counts = (*counts[:phase], most if found is None else found, *counts[phase + 1 :])
    return trials.score(point, counts)


def rank_score(score: FleetScore) -> tuple[float, float]:
    """Return the order of scores: the cheapest first, then the one with the most slack."""
    return score.usd_per_hour, -score.slack


def rank_answer(score: FleetScore) -> tuple[float, int, int, float]:
    """Return the order of answers: of equal cost the one with most bits, which changes the llm least."""
    variant = score.point.variant
    return score.usd_per_hour, -variant.weight_bits, -variant.kv_bits, -score.slack


def race_points(
    trials: FleetTrials,
    points: Iterable[EnginePoint],
    margin: float,
    guesses: Callable[[EnginePoint], int | None] = lambda point: None,
    note: Callable[[], None] = lambda: None,
    best_usd: float = NO_LIMIT,
    parts: int | None = None,
) -> list[FleetScore]:
    """Return the scores of the points within `margin` of the cheapest one, best first.

    `parts`: how exact the fewest instances are (fewest_attaining).
    """
    found = list[FleetScore]()
    for point in sorted(points, key=trials.steady_usd):
        most_usd = best_usd * (1 + margin)
        if trials.bound_usd(point) <= most_usd:
            score = fewest_attaining(trials, point, most_usd, guesses(point), parts)
            if score is not None:
                found.append(score)
                best_usd = min(best_usd, score.usd_per_hour)
        note()
    return sorted((s for s in found if s.usd_per_hour <= best_usd * (1 + margin)), key=rank_score)


class EngineSearch(NamedTuple):
    """What a search found."""

    finalists: Sequence[FleetScore]  # on the whole windows, the best point first, then those of other kinds
    front: Sequence[FleetScore]  # cost against TPOT, on the middle windows, the cheapest first
    runners: Sequence[EnginePoint]  # the best point of each kind that reached the middle windows
    considered: int  # points
    replayed: int  # points with at least one replay
    replays: int


def search_engines(
    short: FleetTrials,
    middle: FleetTrials,
    whole: FleetTrials,
    kinds: Sequence[EnginePoint],
    note: Callable[[str], None] = lambda stage: None,
) -> EngineSearch | None:
    """Return the best points of all kinds and settings; None where no point attains every tier."""
    first = race_points(short, kinds, KIND_MARGIN, note=lambda: note("kinds"), parts=COARSE_PARTS)
    if not first:
        return None
    chosen = first[:BEST_KINDS]
    points = dict.fromkeys(point for score in chosen for point in (score.point, *list_settings(score.point)))
    scores = race_points(short, points, SETTING_MARGIN, note=lambda: note("settings"), parts=COARSE_PARTS)
    longer = race_points(
        middle, (s.point for s in spread_kinds(scores, MIDDLE_POINTS)), SETTING_MARGIN,
        lambda point: scaled_guess(short, middle, point), lambda: note("middle"),
    )  # fmt: skip
    longer = longer or scores
    finalists = run_finals(middle, whole, longer, note)
    if not finalists:
        return None
    front = [
        fewest_attaining(middle, score.point, guess=scaled_guess(short, middle, score.point))
        for score in (*tpot_front(first)[:FRONT_KINDS], *finalists)
    ]
    replayed = {point for trials in (short, middle, whole) for point, _ in trials.scores}
    return EngineSearch(
        finalists,
        tpot_front(score for score in front if score is not None),
        [score.point for score in heads_of_kinds(longer)],
        sum(len(list(list_settings(kind))) for kind in kinds),
        len(replayed),
        sum(len(trials.scores) for trials in {id(t): t for t in (short, middle, whole)}.values()),
    )


def search_backends(
    kinds: Sequence[EnginePoint], search: Callable[[Sequence[EnginePoint]], EngineSearch | None]
) -> EngineSearch | None:
    """Return what `search` finds, with the best point of each backend that attains among the finalists.

    A backend that the search has dropped is searched alone: windows before the whole ones may mislead.
    """
    found = search(kinds)
    if found is None:
        return None
    finalists = list(found.finalists)
    for backend in dict.fromkeys(kind.variant.backend for kind in kinds):
        if all(score.point.variant.backend != backend for score in finalists):
            alone = search([kind for kind in kinds if kind.variant.backend == backend])
            finalists += alone.finalists[:1] if alone else []
    return found._replace(finalists=sorted(finalists, key=rank_answer))


def run_finals(
    middle: FleetTrials, whole: FleetTrials, longer: Sequence[FleetScore], note: Callable[[str], None]
) -> list[FleetScore]:
    """Return the best point on the whole windows, then the best points of other kinds."""
    heads = [score.point for score in heads_of_kinds(longer)][:FINALISTS]

    def guess(point: EnginePoint) -> int | None:
        return scaled_guess(middle, whole, point)

    scores = race_points(whole, heads, LAST_MARGIN, guess, lambda: note("whole"))
    if not scores:
        return []
    # A point that is not the head of its kind wins only with fewer GPUs, or as many and more slack.
    rest = first_and_equal([score for score in longer if score.point not in heads], OTHERS)
    scores += race_points(
        whole, (score.point for score in rest), 0.0, guess, lambda: note("whole"), scores[0].usd_per_hour
    )
    scores.sort(key=rank_answer)
    return heads_of_kinds(scores)


def heads_of_kinds(scores: Sequence[FleetScore]) -> list[FleetScore]:
    """Return the first score of each kind, in order."""
    heads: dict[EnginePoint, FleetScore] = {}
    for score in scores:
        heads.setdefault(score.point.kind, score)
    return list(heads.values())


def scaled_guess(before: FleetTrials, after: FleetTrials, point: EnginePoint) -> int | None:
    """Return a guess of the instances of a point, from the fewest on other windows; None without one."""
    attained = [sum(c) for (p, c), score in before.scores.items() if p == point and score.is_attained]
    if not attained:
        return None
    ratio = sum(after.steady_instances(point)) / sum(before.steady_instances(point))
    return max(1, round(min(attained) * ratio))


def spread_kinds(scores: Sequence[FleetScore], count: int) -> list[FleetScore]:
    """Return `count` scores, and equal ones: the best of each kind in turn, so that none fills all places."""
    by_kind: dict[EnginePoint, list[FleetScore]] = {}
    for score in scores:
        by_kind.setdefault(score.point.kind, []).append(score)
    places = ((n, score) for group in by_kind.values() for n, score in enumerate(group))
    turns = sorted(places, key=lambda place: (place[0], rank_score(place[1])))
    return first_and_equal([score for _, score in turns], count)


def first_and_equal(scores: Sequence[FleetScore], count: int) -> list[FleetScore]:
    """Return the first `count` scores, and later ones that equal one of them.

    Where one instance serves a window in time, many points are equal. Only a longer window
    separates them.
    """
    ranks = {rank_score(score) for score in scores[:count]}
    return [score for n, score in enumerate(scores) if n < count or rank_score(score) in ranks]


def tpot_front(scores: Iterable[FleetScore]) -> list[FleetScore]:
    """Return the scores to which no other is both cheaper and faster by its P95 of TPOT, cheapest first."""
    front = list[FleetScore]()
    for score in sorted(scores, key=lambda s: (s.usd_per_hour, s.seconds["tpot_p95_s"])):
        if not front or score.seconds["tpot_p95_s"] < front[-1].seconds["tpot_p95_s"]:
            front.append(score)
    return front
