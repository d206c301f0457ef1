"""Bodies of both clouds, sync and async, against a store that answers oddly."""
