"""The lakes of a cluster's nights, on a disk and in a bucket, held against that of one process."""

import filecmp
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import s3_server

REPLAYED = ("outcomes", "legs", "fleet_hours", "closed_plans")
BUCKET = f"{s3_server.BUCKET}/lake"


class Lakes:
    """`known` is of one process; the other two begin as it is."""

    def __init__(self, known: Path, lake: Path, store: s3_server.Server) -> None:
        self.known, self.lake, self.store, self.bucket = known, lake, store, files_of(store)
        shutil.copytree(known, lake)
        self.bucket.put(f"{known}/", f"{BUCKET}/", recursive=True)

    def clear(self) -> None:
        """Take what a replay writes out of both lakes."""
        self.bucket.invalidate_cache()
        for table in (*REPLAYED, "made_from"):
            shutil.rmtree(self.lake / table, ignore_errors=True)
            if self.bucket.exists(f"{BUCKET}/{table}"):
                self.bucket.rm(f"{BUCKET}/{table}", recursive=True)

    def difference(self, location: str) -> str:
        """What of the files that a replay writes is not as in one process, byte for byte; all can be read."""
        lake = self.lake
        if location == "bucket":
            lake = self.lake.with_name("fetched")
            shutil.rmtree(lake, ignore_errors=True)
            self.bucket.invalidate_cache()
            self.bucket.get(f"{BUCKET}/", f"{lake}/", recursive=True)
        files, there = written(self.known), written(lake)
        for path in there:
            pq.read_table(lake / path)
        _, other, _ = filecmp.cmpfiles(self.known, lake, map(str, files & there), shallow=False)
        counts = {"lack": len(files - there), "are too many": len(there - files), "differ": len(other)}
        return ", ".join(f"{n} {how}" for how, n in counts.items() if n)


def files_of(store: s3_server.Server) -> Any:
    """What is in the bucket, as files."""
    from s3fs import S3FileSystem  # of the extra cluster

    key, secret = s3_server.KEYS["AWS_ACCESS_KEY_ID"], s3_server.KEYS["AWS_SECRET_ACCESS_KEY"]
    return S3FileSystem(key=key, secret=secret, endpoint_url=store.url)


def written(lake: Path) -> set[Path]:
    """The files of a lake that a replay writes."""
    return {path.relative_to(lake) for table in REPLAYED for path in (lake / table).rglob("*.parquet")}
