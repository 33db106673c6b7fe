"""Forecasts by the minute, up to the time that an instance takes to boot, for all pools of a fleet at once.

    forecaster = MinuteForecaster(pools=400, horizon=10)
    for demand, season, season_ahead in minutes:
        forecast = forecaster.step(demand, season, season_ahead)

A forecast is a level times the season. A level is discounted demand over discounted season; there is one for
each of HALF_LIVES_MINUTES. They are weighed by their recent errors at each lead, as members of an ensemble
are. The season is any profile of the expected demand, such as the forecast of the hour, or constant.

Quantiles are read from the last RESIDUALS errors of the same pool at the same lead, as in conformal.py: in
units of the forecast plus a share of the level, and at a place that moves after every hit and miss (Gibbs and
Candes, 2021, equation 2). A pool with few errors takes the quantiles of all pools.
"""

from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.forecast.conformal import BASE_SHARE, FIRST_STEP, LEAST_STEP, QUANTILE_LEVELS

HALF_LIVES_MINUTES = (0.5, 2.0, 8.0, 30.0, 120.0)  # of the levels; the last one is the unit's
LOSS_HALF_LIFE_MINUTES = 120.0
MINUTE_SHARPNESS = 4.0  # exponent of the weights
RESIDUALS = 180  # minutes
LEAST_RESIDUALS = 20
TINY = 1e-12  # avoids division by zero


class MinuteForecast(NamedTuple):
    """Demand of each pool in each of the next minutes, in the unit of the observed demand."""

    mean: Floats  # (pools, minutes ahead)
    quantiles: Floats  # at QUANTILE_LEVELS, (pools, minutes ahead, levels); they do not cross


class MinuteForecaster:
    """The levels, errors and quantiles of P pools for H minutes ahead; M half-lives, Q quantile levels."""

    def __init__(self, pools: int, horizon: int) -> None:
        if pools < 0 or horizon < 1:
            raise ValueError(f"got {pools} pools, {horizon} minutes ahead; needed 0 or more, and 1 or more.")
        halves, levels = len(HALF_LIVES_MINUTES), len(QUANTILE_LEVELS)
        self.pools, self.horizon, self.minute = pools, horizon, 0
        self.keep = 0.5 ** (1 / np.array(HALF_LIVES_MINUTES))[:, None]
        self.demand, self.season = np.zeros((2, halves, pools))  # discounted sums
        self.known = np.zeros(pools)  # discounted number of known minutes, of the longest half-life
        self.loss, self.scored = np.zeros((halves, pools, horizon)), np.zeros((pools, horizon))
        # Forecasts that are still to be scored, by the minute in which they were made, modulo the horizon.
        self.of_levels = np.full((horizon, halves, pools, horizon), np.nan)
        self.mean, self.unit = np.full((2, horizon, pools, horizon), np.nan)
        self.tails = np.full((horizon, pools, horizon, levels), np.nan)
        self.residuals = np.full((pools, horizon, RESIDUALS), np.nan)
        self.place = np.broadcast_to(np.array(QUANTILE_LEVELS), (pools, horizon, levels)).copy()
        self.moves = np.zeros((pools, horizon))

    def step(self, demand: Floats, season: Floats, season_ahead: Floats) -> MinuteForecast:
        """Observe the latest minute and forecast the next ones.

        Parameters
        ----------
        demand
            Of the latest minute, shape (P,), nan where it is unknown.
        season
            Expected demand of the latest minute, >= 0, in any unit, shape (P,).
        season_ahead
            Expected demand of the next H minutes in that unit, shape (P, H).

        Raises
        ------
        ValueError
            A wrong shape, or a demand or season below zero or infinite.
        """
        shapes = (self.pools,), (self.pools,), (self.pools, self.horizon)
        for name, value, shape in zip(
            ("demand", "season", "season_ahead"), (demand, season, season_ahead), shapes, strict=True
        ):
            is_wrong = np.isinf(value) | (value < 0) | (np.isnan(value) & (name != "demand"))
            if np.shape(value) != shape or is_wrong.any():
                raise ValueError(
                    f"{name}: needed the shape {shape} of finite values >= 0, got {value!r:.60}."
                )
        if self.minute:
            self._score(demand)
        known = ~np.isnan(demand)
        keep = np.where(known, self.keep, 1.0)
        self.demand = keep * self.demand + np.where(known, demand, 0.0)
        self.season = keep * self.season + np.where(known, season, 0.0)
        self.known = keep[-1] * self.known + known
        self.minute += 1
        return self._forecast(season_ahead)

    def _score(self, demand: Floats) -> None:
        """Add the errors of the forecasts of this minute, made 1 .. H minutes ago."""
        lead = np.arange(self.horizon)
        made = (self.minute - lead) % self.horizon  # where those of each lead are kept
        actual = demand[:, None]
        of_levels = self.of_levels[made, :, :, lead].transpose(1, 2, 0)  # (M, P, H)
        mean, unit = (of[made, :, lead].T for of in (self.mean, self.unit))
        is_new = ~np.isnan(actual - mean)
        keep = np.where(is_new, 0.5 ** (1 / LOSS_HALF_LIFE_MINUTES), 1.0)
        self.loss = keep * self.loss + np.where(is_new, np.abs(of_levels - actual), 0.0)
        self.scored = keep * self.scored + is_new
        residual = (actual - mean) / unit
        self.residuals[:, :, self.minute % RESIDUALS] = residual
        tails = self.tails[made, :, lead].transpose(1, 0, 2)  # (P, H, Q)
        can_move = ~np.isnan(residual)[..., None] & ~np.isnan(tails)
        self.moves += can_move[..., 0]
        step = np.maximum(FIRST_STEP / np.sqrt(np.maximum(self.moves, 1)), LEAST_STEP)[..., None]
        step = step / (lead + 1)[:, None]  # forecasts that overlap err together
        moved = self.place + step * (np.array(QUANTILE_LEVELS) - (residual[..., None] <= tails))
        self.place = np.where(can_move, np.clip(moved, 0.01, 0.995), self.place)

    def _forecast(self, season_ahead: Floats) -> MinuteForecast:
        """Forecast from the sums so far, and keep the forecast until it can be scored."""
        level = self.demand / np.maximum(self.season, TINY)
        of_levels = level[..., None] * season_ahead
        loss = (self.loss + TINY) / np.maximum(self.scored, TINY)
        weight = (loss.min(axis=0) / loss) ** MINUTE_SHARPNESS
        mean = (weight * of_levels).sum(axis=0) / weight.sum(axis=0)
        usual = (self.demand[-1] / np.maximum(self.known, TINY))[:, None]
        unit = mean + BASE_SHARE * usual
        unit = np.where(unit > 0, unit, np.nan)
        own = self._own_tails()
        at = self.minute % self.horizon
        self.of_levels[at], self.mean[at], self.unit[at], self.tails[at] = of_levels, mean, unit, own
        spread = np.nan_to_num(unit)[..., None] * self._with_kin(own)
        return MinuteForecast(mean, np.maximum.accumulate(np.maximum(mean[..., None] + spread, 0.0), axis=-1))

    def _own_tails(self) -> Floats:
        """Return the residual quantiles of each pool, (P, H, Q), nan below LEAST_RESIDUALS errors."""
        known = (~np.isnan(self.residuals)).sum(axis=2)[..., None]
        ordered = np.sort(self.residuals, axis=2)  # nan sorts last
        rank = np.ceil((known + 1) * self.place).astype(np.int64)
        picked = np.take_along_axis(ordered, np.clip(rank, 1, np.maximum(known, 1)) - 1, axis=2)
        return np.where(known < LEAST_RESIDUALS, np.nan, picked)

    def _with_kin(self, own: Floats) -> Floats:
        """Fill unknown quantiles, (P, H, Q), with those of all pools; 0 where these have too few errors."""
        filled = own.copy()
        for lead in np.flatnonzero(np.isnan(own).any(axis=(0, 2))):
            pooled = self.residuals[:, lead][~np.isnan(self.residuals[:, lead])]
            kin = np.quantile(pooled, QUANTILE_LEVELS) if pooled.size >= LEAST_RESIDUALS else np.zeros(3)
            filled[:, lead] = np.where(np.isnan(own[:, lead]), kin, own[:, lead])
        return filled
