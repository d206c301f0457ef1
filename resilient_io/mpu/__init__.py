"""`resilient-io mpu`: the multipart uploads that nobody completed."""
