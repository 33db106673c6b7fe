"""`fleetcast calibrate`: a latency profile for the user's own engine."""

from pathlib import Path
from typing import Annotated

import typer

from pipelines.options import config_of, file_of
from pipelines.terminal import ERR, OUT, near, spoken


def calibrate(
    llm: Annotated[str, typer.Option(help="A name of data/catalogue/llms.toml.")],
    gpu: Annotated[str, typer.Option(help="A name of data/catalogue/gpus.toml.")],
    tensor_parallel: Annotated[int, typer.Option(help="GPUs of one instance.", min=1, max=64)],
    file: Annotated[
        Path | None, typer.Argument(help="CSV of measured requests of one instance.", metavar="[FILE]")
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Put it into data/catalogue/latency.toml.")] = False,
    config: Annotated[str, typer.Option(help="Whose [fleet] says how the engine batches.")] = "office",
) -> None:
    """Fit a latency profile to measured requests; without a file, estimate one from the hardware.

    The CSV has the columns arrival_s, input_tokens, output_tokens, ttft_s, e2e_s (seconds; the last two from
    the arrival on), of all requests that ONE instance served in a stretch of time. The last 30 % are left out
    of the fit and replayed: their error is told. The block printed is one for data/catalogue/latency.toml.

        fleetcast calibrate requests.csv --llm llama3.1-8b --gpu h100-80gb --tensor-parallel 1

        fleetcast calibrate --llm llama2-70b --gpu h200-141gb --tensor-parallel 2 --write
    """
    with spoken():
        from assets.studies.calibration import LATENCY, to_toml, write_profile
        from models.world.catalogue import load_catalogue
        from models.world.config import Deployment
        from models.world.reading import require_known

        catalogue = load_catalogue()
        require_known(llm, catalogue.llms, "llm", "--llm")
        require_known(gpu, catalogue.gpus, "gpu", "--gpu")
        deployment = Deployment(gpu, tensor_parallel)
        if file is None:
            from models.replay.calibration import estimate

            profile = estimate(llm, deployment, catalogue)
        else:
            from assets.studies.calibration import read_requests
            from models.replay.calibration import calibrate as fit
            from models.world.loading import load_config

            found = fit(
                read_requests(file_of(file)),
                llm,
                deployment,
                catalogue,
                load_config(config_of(config), catalogue),
                file.name,
            )
            profile = found.profile
            ERR.print(
                f"{found.fitted} requests fitted, {found.held_out} left out and replayed: mean error of TTFT "
                f"{found.ttft_error_share:.1%}, of E2E {found.e2e_error_share:.1%}; their means are off by "
                f"{found.mean_ttft_error_share:+.1%} and {found.mean_e2e_error_share:+.1%}.",
                soft_wrap=True,
            )
        OUT.print(to_toml(profile), end="", markup=False, soft_wrap=True)
        if write:
            replaced = write_profile(profile, LATENCY)
            ERR.print(
                f"{near(LATENCY)}: the profile was {'replaced' if replaced else 'added'}.", soft_wrap=True
            )
