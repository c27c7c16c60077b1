"""Text to ids and back: the only place that knows chat templates and tokenizers."""
