"""What a store answers when it refuses, in one line with the remedy; and whether asking again may help."""

from typing import Any

from aiohttp import ClientError as BrokenOff
from botocore.exceptions import BotoCoreError, HTTPClientError, IncompleteReadError, NoCredentialsError
from botocore.exceptions import ConnectionError as NoConnection

from fleetcast.assets.lake.errors import ChangedError, StoreError

PATIENCE_S = 30.0  # so long a store that does not answer is asked again
KEY_CODES = {
    *("ExpiredToken", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied", "InvalidToken", "403"),
    *("RequestTimeTooSkewed", "TokenRefreshRequired", "AuthorizationHeaderMalformed", "AllAccessDisabled"),
}
FULL_CODES = {
    *("QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "507"),
    *("InsufficientCapacity", "TotalSizeExceeded"),
}
PASSING_CODES = {"SlowDown", "RequestTimeout", "Throttling", "TooManyRequests", "RequestTimeoutException"}
LASTING = {501, 507}  # of the answers from 500 on: asking again does not help
CHANGED = {409, 412}
NOTHING_THERE = 416  # a range of an object that has no byte
AWAY = (HTTPClientError, IncompleteReadError, NoConnection, BrokenOff, TimeoutError, ConnectionError)


def is_of_store(error: Exception) -> bool:
    """Whether it tells of the store at all; an object that is not there is no error of the store."""
    code, status = answered(error)
    if isinstance(error, FileNotFoundError):
        return code == "NoSuchBucket"
    return status > 0 or isinstance(error, (OSError, BotoCoreError, *AWAY))


def is_passing(error: Exception) -> bool:
    """Whether it may go well a moment later."""
    code, status = answered(error)
    return isinstance(error, AWAY) or code in PASSING_CODES or (status >= 500 and status not in LASTING)


def answered(error: BaseException | None) -> tuple[str, int]:
    """The code and the status that the store answered with; "" and 0 where it did not answer."""
    said = _answer(error)
    status = said.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return str(said.get("Error", {}).get("Code", "")), int(status)


def changed(bucket: str) -> ChangedError:
    """What to say of an object that is another one now, or none."""
    return ChangedError(f"An object of s3://{bucket} was written anew or removed while in use. Run it again.")


def _answer(error: BaseException | None) -> dict[str, Any]:
    cause = getattr(error, "__cause__", None)
    return getattr(error, "response", None) or getattr(cause, "response", None) or {}


def told(error: Exception, bucket: str) -> StoreError:
    """What is wrong, and what to do, in one line."""
    code, status = answered(error)
    if status in CHANGED:
        return changed(bucket)
    said = " ".join((_answer(error).get("Error", {}).get("Message") or str(error)).split()).rstrip(". ")
    where = f"The store of s3://{bucket}"
    if code == "NoSuchBucket":
        return StoreError(
            f"There is no bucket {bucket!r}. Make it, or name another; AWS_ENDPOINT_URL says at which store."
        )
    if isinstance(error, NoCredentialsError):
        return StoreError(
            f"{where} wants a key, and there is none. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    if code in KEY_CODES:
        return StoreError(
            f"{where} refuses the key ({code}: {said}). Renew AWS_ACCESS_KEY_ID and what belongs to it, "
            "or let it read and write there."
        )
    if code in FULL_CODES:
        return StoreError(
            f"{where} is full ({code}: {said}). Free some space and run again; what was there before is kept."
        )
    if is_passing(error):
        return StoreError(
            f"{where} did not answer for {PATIENCE_S:.0f} s ({said}). "
            "Run again when it does; what was there before is kept."
        )
    return StoreError(f"{where} failed ({code or type(error).__name__}: {said}).")
