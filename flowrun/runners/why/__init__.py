"""Why nothing comes out of a job, or slowly: findings about a running job, or about its last checkpoint."""
