"""Bit rot: of so many flipped bits in a lake's files, how many are found, and how many a query would miss."""

import random
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from bit_rot_lake import SEED, flip, small_lake
from measure import Figures, Target

from fleetcast.assets.lake.damaged_files import check_lake_files
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.file_digests import sha256_of

BITS = 60
TARGETS = {
    "bits_flipped_found": Target("", f"flipped bits that fleetcast check finds, of {BITS}", at_least=BITS),
    "bits_flipped_unread": Target("", f"flipped bits after which a query gives other rows, of {BITS}"),
    "digest_gb_per_s": Target("GB/s", "bytes that one core verifies, from memory; CPU"),
}


def flipped_bits() -> Figures:
    """Flip bits one by one, each in a random place of a random file; verify the lake, and query the file."""
    draw, found, other = random.Random(SEED), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        lake = small_lake(Path(folder) / "lake")
        files = sorted(lake.root.rglob("*.parquet"))
        queries = {path: f"from read_parquet('{path}') order by all" for path in files}
        whole = {path: lake.sql(query) for path, query in queries.items()}
        for _ in range(BITS):
            path = draw.choice(files)
            bit = draw.randrange(8 * path.stat().st_size)
            flip(path, bit)
            found += [*check_lake_files(lake).damaged] == [lake.below(path)]
            with suppress(LakeError):  # an error is no wrong answer
                other += not lake.sql(queries[path]).equals(whole[path])
            flip(path, bit)
        large = Path(folder) / "large"
        large.write_bytes(random.Random(SEED).randbytes(1 << 26))
        begun_s = time.process_time()
        sha256_of(large)
        speed = large.stat().st_size / 1e9 / (time.process_time() - begun_s)
    return {"bits_flipped_found": found, "bits_flipped_unread": other, "digest_gb_per_s": speed}


FUNCTIONS = (flipped_bits,)
SMOKE = {"flipped_bits": {"BITS": 3}}
