"""What an error code can mean. One value stands for one rule."""

from __future__ import annotations

from enum import Enum


class CodeMeaning(Enum):
    """What a service's error code means, before the operation is looked at."""

    THROTTLED = "throttled"
    THROTTLED_MAYBE_APPLIED = "throttled_maybe_applied"
    KMS_THROTTLED = "kms_throttled"
    SERVER_ERROR = "server_error"
    TIMEOUT = "timeout"
    CONFLICT_NOW = "conflict_now"
    DAMAGED_UPLOAD = "damaged_upload"
    DAMAGED_ANSWER = "damaged_answer"
    EMPTY_ANSWER = "empty_answer"
    COMMIT_UNSURE = "commit_unsure"
    EXPIRED = "expired"
    SKEWED = "skewed"
    AUTH = "auth"
    DENIED = "denied"
    NOT_FOUND = "not_found"
    PRECONDITION = "precondition"
    CLIENT_BUG = "client_bug"
    UNSUPPORTED = "unsupported"
    NONE = "none"
