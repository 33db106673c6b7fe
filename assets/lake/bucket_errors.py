"""What a store answers when it refuses, in one line with the remedy; and whether asking again may help."""

from typing import Any

from aiohttp import ClientError as BrokenOff
from botocore.exceptions import BotoCoreError, HTTPClientError, IncompleteReadError, NoCredentialsError
from botocore.exceptions import ConnectionError as NoConnection

from fleetcast.assets.lake.errors import ChangedError, StoreError

RETRY_FOR_S = 30.0  # so long a store that does not answer is asked again
KEY_CODES = {
    *("ExpiredToken", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied", "InvalidToken", "403"),
    *("RequestTimeTooSkewed", "TokenRefreshRequired", "AuthorizationHeaderMalformed", "AllAccessDisabled"),
}
FULL_CODES = {
    *("QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "507"),
    *("InsufficientCapacity", "TotalSizeExceeded"),
}
TRANSIENT_CODES = {"SlowDown", "RequestTimeout", "Throttling", "TooManyRequests", "RequestTimeoutException"}
PERMANENT_STATUSES = {501, 507}  # of the answers from 500 on: asking again does not help
CONFLICT_STATUSES = {409, 412}
RANGE_NOT_SATISFIABLE = 416  # a range of an object that has no byte
CONNECTION_ERRORS = (
    HTTPClientError,
    IncompleteReadError,
    NoConnection,
    BrokenOff,
    TimeoutError,
    ConnectionError,
)


def is_store_error(error: Exception) -> bool:
    """Whether it tells of the store at all; an object that is not there is no error of the store."""
    code, status = store_error_code(error)
    if isinstance(error, FileNotFoundError):
        return code == "NoSuchBucket"
    return status > 0 or isinstance(error, (OSError, BotoCoreError, *CONNECTION_ERRORS))


def is_transient_error(error: Exception) -> bool:
    """Whether it may go well a moment later."""
    code, status = store_error_code(error)
    return (
        isinstance(error, CONNECTION_ERRORS)
        or code in TRANSIENT_CODES
        or (status >= 500 and status not in PERMANENT_STATUSES)
    )


def store_error_code(error: BaseException | None) -> tuple[str, int]:
    """The code and the status that the store answered with; "" and 0 where it did not answer."""
    said = _error_response(error)
    status = said.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return str(said.get("Error", {}).get("Code", "")), int(status)


def object_changed_error(bucket: str) -> ChangedError:
    """What to say of an object that is another one now, or none."""
    return ChangedError(f"An object of s3://{bucket} was written anew or removed while in use. Run it again.")


def _error_response(error: BaseException | None) -> dict[str, Any]:
    cause = getattr(error, "__cause__", None)
    return getattr(error, "response", None) or getattr(cause, "response", None) or {}


def explain_store_error(error: Exception, bucket: str) -> StoreError:
    """What is wrong, and what to do, in one line."""
    code, status = store_error_code(error)
    if status in CONFLICT_STATUSES:
        return object_changed_error(bucket)
    said = " ".join((_error_response(error).get("Error", {}).get("Message") or str(error)).split()).rstrip(
        ". "
    )
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
    if is_transient_error(error):
        return StoreError(
            f"{where} did not answer for {RETRY_FOR_S:.0f} s ({said}). "
            "Run again when it does; what was there before is kept."
        )
    return StoreError(f"{where} failed ({code or type(error).__name__}: {said}).")
