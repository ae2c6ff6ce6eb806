"""The jobs that come with the service. A worker runs them when `OUTLAST_JOBS` names their module."""
