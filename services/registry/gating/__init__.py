"""The gate: evaluations on replicas, evaluation sets, results of pipelines, and what they come to."""
