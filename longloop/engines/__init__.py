"""What samples."""
