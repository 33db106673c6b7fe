"""Print data/catalogue/kernels.toml from the measured kernels: python tests/bench/kernel_table.py > FILE."""

import measure  # noqa: F401  (the tests' modules are found through it)
import measurements

from fleetcast.models.world.kernel_times import KernelTimes

HEAD = """\
# Kernel times by GPU type; models/latency/composed_profiles.py has the formulas, tests/kernel_fit.py the fit
# of the coefficients to tables of single kernels (sources below). Written by
# tests/bench/kernel_table.py. Seconds; tokens of a pass; weights of a product by the bits of each.
"""


def written(gpu: str, kernels: KernelTimes) -> str:
    """The tables of one GPU type."""
    lines = [f"[{gpu}]"]
    for name, value in vars(kernels).items():
        if name != "products" and value is not None:
            lines.append(f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}")
    for bits, products in kernels.products.items():
        lines += ["", f"[{gpu}.products.{bits}]"]
        lines += [f"{name} = {list(value)}" for name, value in vars(products).items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(HEAD)
    whole = {gpu: measurements.kernels_of(name) for name, (gpu, _) in measurements.KERNEL_GPUS.items()}
    tables = (written(gpu, kernels) for gpu, kernels in {**whole, **measurements.kernels_in_part()}.items())
    print("\n".join(tables), end="")
