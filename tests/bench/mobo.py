"""BoUTE's search by Bayesian optimisation (5.2, 6) with its kernels, compared with the exact front.

    k      Matern 5/2 over the share that goes to the large llm + w(c) w(c') Matern 3/2 over the deployment
           + phi times the product of both; each with ARD and a scale, all by marginal likelihood, in doubles
    w(c)   exp(beta sum a s): a GPUs of a type for an llm, as a share of those there are, s what the type
           carries of that llm per USD, over the best one's
    S1     shares instead of thresholds           S2, S3   budget and GPUs: no candidate breaks them
    S4     log P95 and logit quality, standardised         S5   w(c)

The acquisition is BoTorch's qLogNoisyExpectedHypervolumeImprovement, one candidate at a time, over a fresh
draw of POOL of the combinations of points and candidates each round. An evaluation is a look-up in the tables
that the exact front is made of. A process that cannot be fitted keeps its first parameters for that round.
It needs the dependency group mobo (uv sync --group mobo), which nothing of the product does.
"""

import importlib.util
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
from measure import Figures, Skipped, Target
from quality import BUDGET, SMALL_MARKET, settings_with, volume, warm
from quality_oracles import front

from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.plans.quality_markets import build_market
from fleetcast.models.plan import boute
from fleetcast.models.plan.quality_milp import PointPlan, QualityDemand, QualityOffer, replica_capacity_per_s

SEEDS = (1,)
FIRST, EVALUATIONS, POOL = 10, 100, 2_000
WORST_S, LEAST_QUALITY = 60.0, 0.4  # where hypervolumes begin (quality.volume)
LATENCIES_S = np.geomspace(1.0, 120.0, 400)  # at which a deployment is looked up; above them it does not do
TARGETS = {
    "quality_front_over_mobo": Target(
        "", f"hypervolume of the exact front over BoTorch's at {EVALUATIONS} evaluations", at_least=1.05
    ),
    "quality_mobo_seconds": Target("s", "CPU of these evaluations, mean of the seeds"),
    "quality_mobo_front_seconds": Target("s", "CPU of the exact front on the same tables"),
}


class Space(NamedTuple):
    """What is searched: points, and deployments of the small and of the large llm."""

    offer: QualityOffer
    demand: QualityDemand
    deployments: list[list[np.ndarray]]  # of each llm, instances (S,)
    preference: np.ndarray  # (M, types that are offered)
    combinations: np.ndarray  # (X, 1 + M) those within budget and GPUs


def bayesian() -> Figures:
    """Bayesian optimisation with the paper's kernels against the exact front."""
    if missing := [
        name for name in ("torch", "gpytorch", "botorch") if importlib.util.find_spec(name) is None
    ]:
        raise Skipped(f"no {missing[0]}: uv sync --group mobo")
    settings = settings_with(gpus=SMALL_MARKET, rule="route")
    warm(settings)
    market = build_market(settings, Progress())
    demand = market.demand._replace(budget_usd_per_hour=BUDGET)
    began = time.process_time()
    exact = front(market.offers["route"], demand)
    front_s = time.process_time() - began
    space = space_of(market.offers["route"], demand)
    found, spent = [], []
    for seed in SEEDS:
        began = time.process_time()
        found.append(volume(space.offer, searched(space, seed)))
        spent.append(time.process_time() - began)
        print(f"seed {seed}: {found[-1]:.4f} in {spent[-1]:.0f} s; exact {volume(space.offer, exact):.4f}")
    return {
        "quality_front_over_mobo": volume(space.offer, exact) / max(found),
        "quality_mobo_seconds": float(np.mean(spent)),
        "quality_mobo_front_seconds": front_s,
    }


def space_of(offer: QualityOffer, demand: QualityDemand) -> Space:
    """All candidates of all points, and their combinations that keep budget and GPUs (S2, S3)."""
    llms, types = offer.shares.shape[1], demand.cap_gpus.size
    deployments = []
    for llm in range(llms):
        own = [np.zeros(offer.llm.size, np.int64)]
        for point in np.flatnonzero(offer.shares[:, llm] > 0).tolist():
            own += [one.instances for one in boute.deployment_candidates(offer, demand, point, llm)]
        deployments.append(list(np.unique(own, axis=0)))
    sizes = [len(offer.quality), *map(len, deployments)]
    every = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), axis=-1).reshape(-1, len(sizes))
    held = [np.array(own) for own in deployments]
    usd = sum(own[every[:, 1 + llm]] @ offer.usd_per_hour for llm, own in enumerate(held))
    gpus = [own * offer.gpus @ np.eye(types)[offer.gpu] for own in held]
    used = sum(own[every[:, 1 + llm]] for llm, own in enumerate(gpus))
    serves = [(own[every[:, 1 + llm]].sum(axis=1) > 0) for llm, own in enumerate(held)]
    is_required = [offer.shares[every[:, 0], llm] > 0 for llm in range(llms)]
    fits = (usd <= demand.budget_usd_per_hour) & (used <= demand.cap_gpus).all(axis=1)
    for does, must in zip(serves, is_required, strict=True):
        fits &= does == must
    worth = np.zeros((llms, types))
    per_usd = offer.load_per_s[:, 0, -1] / offer.usd_per_hour
    np.maximum.at(worth, (offer.llm, offer.gpu), per_usd)
    worth = worth[:, np.unique(offer.gpu)]
    return Space(offer, demand, deployments, worth / worth.max(axis=1, keepdims=True), every[fits])


def evaluated(space: Space, row: np.ndarray) -> PointPlan:
    """What the tables say of a combination: the least P95 within which the llms carry their load."""
    offer, point = space.offer, int(row[0])
    instances = np.sum([own[n] for own, n in zip(space.deployments, row[1:], strict=True)], axis=0)
    load = space.demand.requests_per_s * offer.shares[point]
    low, high = -1, LATENCIES_S.size
    while high - low > 1:
        middle = (low + high) // 2
        carry = replica_capacity_per_s(offer, point, np.full(load.size, LATENCIES_S[middle]))
        enough = (np.bincount(offer.llm, instances * carry, load.size) >= load - 1e-9).all()
        low, high = (low, middle) if enough else (middle, high)
    latency_s = float(LATENCIES_S[min(high, LATENCIES_S.size - 1)])
    return PointPlan(
        point, instances, float(instances @ offer.usd_per_hour), latency_s, np.full(load.size, latency_s)
    )


def features(space: Space, rows: np.ndarray) -> np.ndarray:
    """Share to the large llm (S1), GPUs by llm and type as shares of those there are, and replicas."""
    offer, caps = space.offer, np.maximum(space.demand.cap_gpus, 1)
    columns = [offer.shares[rows[:, 0], -1][:, None]]
    for llm, own in enumerate(space.deployments):
        instances = np.array(own)[rows[:, 1 + llm]]
        columns.append(
            (instances * offer.gpus @ np.eye(caps.size)[offer.gpu] / caps)[:, np.unique(offer.gpu)]
        )
        columns.append(instances.sum(axis=1, keepdims=True) / 8)
    return np.hstack(columns)


def searched(space: Space, seed: int) -> list[PointPlan]:
    """What EVALUATIONS evaluations find."""
    import torch

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    rng = np.random.default_rng(seed)
    rows = space.combinations[rng.choice(len(space.combinations), FIRST, replace=False)]
    found = [evaluated(space, row) for row in rows]
    while len(found) < EVALUATIONS:
        pool = space.combinations[
            rng.choice(len(space.combinations), min(POOL, len(space.combinations)), replace=False)
        ]
        best = pool[picked(space, rows, found, pool)]
        rows = np.vstack([rows, best])
        found.append(evaluated(space, best))
    return [one for one in found if one.latency_s < LATENCIES_S[-1]]


def picked(space: Space, rows: np.ndarray, found: list[PointPlan], pool: np.ndarray) -> int:
    """The row of the pool with the best expected improvement by two processes fitted to what was found."""
    import torch
    from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
    from botorch.exceptions import ModelFittingError
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import ModelListGP, SingleTaskGP
    from botorch.sampling.normal import SobolQMCNormalSampler
    from gpytorch.mlls import ExactMarginalLogLikelihood

    x = torch.tensor(features(space, rows), dtype=torch.double)
    quality = np.array([space.offer.quality[one.point] for one in found])
    objectives = np.column_stack([-np.log([one.latency_s for one in found]), np.log(quality / (1 - quality))])
    mean, deviation = objectives.mean(axis=0), objectives.std(axis=0) + 1e-9
    y = torch.tensor((objectives - mean) / deviation)
    worst = (np.array([-np.log(WORST_S), np.log(LEAST_QUALITY / (1 - LEAST_QUALITY))]) - mean) / deviation
    exact = torch.full((len(y), 1), 1e-3, dtype=torch.double)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ModelListGP(*(
            SingleTaskGP(
                x, y[:, [column]], exact, covar_module=kernel(space, x.shape[1]), outcome_transform=None
            )
            for column in range(2)
        ))  # fmt: skip
        for one in model.models:
            begun = {name: value.clone() for name, value in one.state_dict().items()}
            try:
                fit_gpytorch_mll(ExactMarginalLogLikelihood(one.likelihood, one))
            except ModelFittingError:
                one.load_state_dict(begun)
                one.eval()
        gain = qLogNoisyExpectedHypervolumeImprovement(
            model, worst.tolist(), x, sampler=SobolQMCNormalSampler(torch.Size([64])), prune_baseline=True
        )
        others = torch.tensor(features(space, pool), dtype=torch.double)[:, None]
        with torch.no_grad():
            worth = torch.cat([gain(part) for part in others.split(500)])
    return int(worth.argmax())


def kernel(space: Space, width: int) -> Any:
    """The composite kernel: of the routing, of the deployment by preference, and their product."""
    import torch
    from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
    from gpytorch.priors import GammaPrior

    llms, types = space.preference.shape
    weights = np.concatenate([np.append(own, 0.0) for own in space.preference])
    preferred = torch.tensor(np.concatenate([[0.0], weights]), dtype=torch.double)
    assert preferred.numel() == width == 1 + llms * (types + 1)

    class PreferenceWeighted(Kernel):
        """w(c) w(c') k(c, c') (S5)."""

        def __init__(self, base: Any) -> None:
            super().__init__()
            self.base = base
            self.register_parameter("beta", torch.nn.Parameter(torch.zeros(1, dtype=torch.double)))

        def forward(self, a: Any, b: Any, diag: bool = False, **_: Any) -> Any:
            """The base kernel, weighted."""
            of_a, of_b = ((self.beta.tanh() * (x @ preferred)).exp() for x in (a, b))
            inner = self.base(a, b, diag=diag)
            if diag:
                return of_a * inner * of_b
            return of_a[..., :, None] * inner.to_dense() * of_b[..., None, :]

    deployment = tuple(range(1, width))
    routing = MaternKernel(nu=2.5, ard_num_dims=1, active_dims=(0,))
    of_c = MaternKernel(nu=1.5, ard_num_dims=len(deployment), active_dims=deployment)
    product = MaternKernel(nu=2.5, ard_num_dims=1, active_dims=(0,)) * MaternKernel(
        nu=1.5, ard_num_dims=len(deployment), active_dims=deployment
    )
    alone, preferring, together = (  # the priors keep ten points from fitting anything
        ScaleKernel(base, outputscale_prior=GammaPrior(2.0, 2.0))
        for base in (routing, PreferenceWeighted(of_c), product)
    )
    together.outputscale = 0.1  # phi: small at first
    return (alone + preferring + together).double()


FUNCTIONS = (bayesian,)
SMOKE = {"bayesian": {"FIRST": 2, "EVALUATIONS": 3, "POOL": 20}}
