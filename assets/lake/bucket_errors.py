"""Errors of an object store as one line with the remedy, and whether a retry may help."""

from typing import Any

from aiohttp import ClientError as AiohttpError
from botocore.exceptions import BotoCoreError, HTTPClientError, IncompleteReadError, NoCredentialsError
from botocore.exceptions import ConnectionError as NoConnection

from fleetcast.assets.lake.errors import ChangedError, StoreError

RETRY_FOR_S = 30.0  # how long requests to a store that does not answer are repeated
KEY_CODES = {
    *("ExpiredToken", "InvalidAccessKeyId", "SignatureDoesNotMatch", "AccessDenied", "InvalidToken", "403"),
    *("RequestTimeTooSkewed", "TokenRefreshRequired", "AuthorizationHeaderMalformed", "AllAccessDisabled"),
}
FULL_CODES = {
    *("QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "507"),
    *("InsufficientCapacity", "TotalSizeExceeded"),
}
TRANSIENT_CODES = {"SlowDown", "RequestTimeout", "Throttling", "TooManyRequests", "RequestTimeoutException"}
PERMANENT_STATUSES = {501, 507}  # statuses from 500 on for which a retry does not help
CONFLICT_STATUSES = {409, 412}
RANGE_NOT_SATISFIABLE = 416  # status for a range of an empty object
CONNECTION_ERRORS = (
    HTTPClientError,
    IncompleteReadError,
    NoConnection,
    AiohttpError,
    TimeoutError,
    ConnectionError,
)


def is_store_error(error: Exception) -> bool:
    """Return whether an error comes from the store; an absent object is no error of the store."""
    code, status = store_error_code(error)
    if isinstance(error, FileNotFoundError):
        return code == "NoSuchBucket"
    return status > 0 or isinstance(error, (OSError, BotoCoreError, *CONNECTION_ERRORS))


def is_transient_error(error: Exception) -> bool:
    """Return whether a retry a moment later may succeed."""
    code, status = store_error_code(error)
    return (
        isinstance(error, CONNECTION_ERRORS)
        or code in TRANSIENT_CODES
        or (status >= 500 and status not in PERMANENT_STATUSES)
    )


def store_error_code(error: BaseException | None) -> tuple[str, int]:
    """Return the error code and the HTTP status of the store's answer; "" and 0 if there was no answer."""
    response = _error_response(error)
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return str(response.get("Error", {}).get("Code", "")), int(status)


def object_changed_error(bucket: str) -> ChangedError:
    """Return the error for an object that was replaced or removed since it was opened."""
    return ChangedError(f"An object of s3://{bucket} was written anew or removed while in use. Run it again.")


def _error_response(error: BaseException | None) -> dict[str, Any]:
    """Return the store's answer in an error or in its cause; empty if there is none."""
    cause = getattr(error, "__cause__", None)
    return getattr(error, "response", None) or getattr(cause, "response", None) or {}


def explain_store_error(error: Exception, bucket: str) -> StoreError:
    """Return an error that names in one line what is wrong and what to do."""
    code, status = store_error_code(error)
    if status in CONFLICT_STATUSES:
        return object_changed_error(bucket)
    message = _error_response(error).get("Error", {}).get("Message") or str(error)
    message = " ".join(message.split()).rstrip(". ")
    where = f"The store of s3://{bucket}"
    if code == "NoSuchBucket":
        return StoreError(
            f"There is no bucket {bucket!r}. Make it, or name another; AWS_ENDPOINT_URL sets the store."
        )
    if isinstance(error, NoCredentialsError):
        return StoreError(
            f"{where} needs a key, and there is none. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    if code in KEY_CODES:
        return StoreError(
            f"{where} refuses the key ({code}: {message}). Renew AWS_ACCESS_KEY_ID and its secret, "
            "or let it read and write there."
        )
    if code in FULL_CODES:
        return StoreError(
            f"{where} is full ({code}: {message}). Free some space and run again; earlier data is kept."
        )
    if is_transient_error(error):
        return StoreError(
            f"{where} did not answer for {RETRY_FOR_S:.0f} s ({message}). "
            "Run again when it does; earlier data is kept."
        )
    return StoreError(f"{where} failed ({code or type(error).__name__}: {message}).")
